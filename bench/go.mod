module github.com/idlewheel/idlewheel/bench

go 1.26

require (
	github.com/RussellLuo/timingwheel v0.0.0-20220218152713-54845bda3108
	github.com/antlabs/timer v0.1.4
	github.com/idlewheel/idlewheel v0.0.0
	github.com/panjf2000/gnet/v2 v2.10.0
	go.uber.org/zap v1.28.0
	golang.org/x/sync v0.19.0
	golang.org/x/sys v0.40.0
	trpc.group/trpc-go/tnet v1.1.0
)

require (
	github.com/antlabs/stl v0.0.2 // indirect
	github.com/kavu/go_reuseport v1.5.0 // indirect
	github.com/panjf2000/ants/v2 v2.12.1 // indirect
	github.com/pkg/errors v0.9.1 // indirect
	github.com/valyala/bytebufferpool v1.0.0 // indirect
	go.uber.org/atomic v1.11.0 // indirect
	go.uber.org/multierr v1.11.0 // indirect
	golang.org/x/time v0.13.0 // indirect
	gopkg.in/natefinch/lumberjack.v2 v2.2.1 // indirect
)

replace github.com/idlewheel/idlewheel => ..
