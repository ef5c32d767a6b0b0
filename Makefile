# CI runs .ci/run, which calls some of these targets.

.PHONY: release demo test long oldest others narrow race lint fmt bench figures fuzz cross attack load scale million simulate model mutants sample ci

# The versions of development tools are in a module of their own.
TOOL = tool -modfile=$(CURDIR)/tools/go.mod

HOLD = --expect 'held>=100%' --expect 'lateness.max<=2s' --expect 'own-delay.max<=1s'

demo:  ; go run ./cmd/echo-heartbeat demo
test:  ; go test ./...
# The long forms of tests: more connections, faults, rounds and attackers.
LONG = ./server ./internal/verdict ./internal/outage ./loadtest/internal/truth ./internal/testing/triallimit
LONG_IDLE = AfterAStall|AnotherConnection|OneNetworkOfTwo|AQuota|OneLargeAnswer
long:  ; IDLEWHEEL_LONG=1 go test -p 1 -count 1 -timeout 15m $(LONG) && IDLEWHEEL_LONG=1 go test -count 1 -timeout 15m ./idle -run '$(LONG_IDLE)'
# The tests with the oldest Go, without root, and with 1,024 descriptors. They skip what needs more,
# which they would not if CI were set.
OTHERS = ./...
OLDEST = go$(shell sed -n 's/^go //p' go.mod)
ROOTLESS = unshare --user
oldest: ; @echo $(OLDEST)
others: ; GOTOOLCHAIN=$(OLDEST) prlimit --nofile=1024:1024 $(ROOTLESS) env -u CI go test -short -count 1 $(OTHERS)
# The tests with 32 bits (SHORT=-short: their short form), if the kernel runs such programs. Where
# it does not, EXEC='-exec "qemu-i386 -E GODEBUG=asyncpreemptoff=1"' runs them.
NARROW = ./idle ./idlenet ./settings ./server ./loadtest/... ./internal/... ./wheel ./timer ./metrics ./reap ./sourcelimit
narrow: export GOARCH = 386
narrow: export CGO_ENABLED = 0
narrow: ; if go test $(EXEC) ./internal/prom 2>&1 | grep -q 'exec format error'; then echo "no 32-bit programs run here: make cross checks their types"; else go test $(EXEC) $(SHORT) -count 1 $(NARROW); fi
race:  ; go test -race ./...
fmt:   ; gofmt -w .
fuzz:  ; IDLEWHEEL_STEPS=100000000 go test ./wheel ./timer -run AgainstModel -count 1 -timeout 30m && go test ./wheel -run '^$$' -fuzz FuzzWheel -fuzztime 500000x && go test ./timer -run '^$$' -fuzz FuzzTimer -fuzztime 500000x
simulate: ; IDLEWHEEL_SIMULATE=10m go test ./idle ./idlenet -run "^TestSimulation$$" -v -count 1 -timeout 15m
model: ; bash idle/model/check.sh
mutants: ; go -C mutants run .
# make sample SAMPLE='-seed 7 -n 50 -run ^server/'
sample: ; go -C mutants run ./sample $(SAMPLE)
bench: ; go test ./idle ./idlenet -run '^$$' -bench . -count 6 | tee bench.out && go $(TOOL) benchstat -col /handler bench.out
# All tables of bench/results; make figures FIGURES=--quick checks that everything works.
figures: ; go -C bench run . $(FIGURES) && go -C bench run ./alternatives $(FIGURES)
attack: ; IDLEWHEEL_FLOODS=20 IDLEWHEEL_CHURN=60s IDLEWHEEL_DRAIN=5000 go test ./server ./cmd/echo-heartbeat -v -p 1 -count 1 -timeout 20m -run "Flood|Churn|Drain|Blast|FullServer|Kill|DiesIs|TooFew"
load:  ; go run ./loadtest hold -c 20k --heartbeat 5s --timeout 15s --hold 15s $(HOLD) && go run ./loadtest storm -c 20k $(HOLD) && go run ./loadtest outage -c 20k --heartbeat 1s --timeout 3s $(HOLD)
scale: ; bash loadtest/results/run 100k 300k
million: ; bash loadtest/results/run 1m
ci:    ; bash .ci/run

# Functions above a cyclomatic complexity of 15 are refused, except in tests and in these files.
COMPLEX = _test\.go$$

lint:
	test -z "$$(gofmt -l .)" || (gofmt -l . && exit 1)
	go vet ./...
	go fix -diff ./...
	go $(TOOL) staticcheck ./...
	go $(TOOL) gocyclo -over 15 -ignore '$(COMPLEX)' .
	go -C tools vet ./...
	go -C tools tool staticcheck ./...
	go -C internal/testing/browser vet ./...
	go -C internal/testing/browser $(TOOL) staticcheck ./...
	go -C nettest vet ./...
	go -C nettest $(TOOL) staticcheck ./...
	go -C examples vet ./...
	go -C examples $(TOOL) staticcheck ./...

# Static programs for Linux, and their checksums. On a tag they have its version.
release:
	rm -rf dist && mkdir dist
	for arch in amd64 arm64; do for p in ./cmd/echo-heartbeat ./loadtest; do \
		CGO_ENABLED=0 GOOS=linux GOARCH=$$arch go build -buildvcs=true -trimpath -ldflags "-s -w" -o dist/$$(basename $$p)-linux-$$arch $$p || exit 1; \
	done; done
	cd dist && sha256sum * > SHA256SUMS

# The types of packages and tests on other systems.
cross: ; go -C tools run ./crosscheck darwin/arm64 freebsd/amd64 windows/amd64 linux/386 linux/arm64
