#!/usr/bin/env bash
# Checks the model in verdict.pml with Spin 6.5: the model has no error, and Spin finds every fault
# that a macro puts into it, for the right reason. It needs spin and cc, about a minute and 1.5 GB.
set -eu

model=$(cd "$(dirname "$0")" && pwd)/verdict.pml
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cp "$model" "$dir"
cd "$dir"

fail() {
	echo "check.sh: $1" >&2
	exit 1
}

for tool in spin cc; do
	command -v "$tool" >/dev/null || fail "$tool is not installed"
done

# search MODE FLAGS... makes a verifier and runs it. Its report is in the file out.
search() {
	local mode=$1
	shift
	rm -f pan pan.* verdict.pml.trail
	spin -a "$@" verdict.pml >spin.out 2>&1 || fail "spin -a $* failed: $(cat spin.out)"
	cc -O2 -DSAFETY -DMEMLIM=2000 $mode -o pan pan.c 2>cc.out || fail "cc failed for $*: $(cat cc.out)"
	./pan -m10000 >out 2>&1 || fail "the search with $* failed: $(cat out)"
}

# cost prints the number of states, the seconds and the memory of the last search.
cost() {
	awk '/states, stored/ { n = $1 } /elapsed time/ { t = $4 } /total actual/ { m = $1 }
		END { printf "%d states, %s s, %d MB\n", n, t, m }' out
}

# holds NAME FLAGS... expects that an exhaustive search finds no error.
holds() {
	local name=$1
	shift
	search "" "$@"
	grep -q 'errors: 0$' out || fail "$name: Spin found an error: $(grep '^pan:1' out)
$(spin -t -T "$@" verdict.pml | grep -E '^[0-9]+ [a-z]+:')"
	! grep -qE 'not completed|max search depth too small' out ||
		fail "$name: the search is not exhaustive"
	echo "$name: holds; $(cost)"
}

# finds ASSERTION FLAGS... expects that the assertion is violated, and prints a shortest trail.
finds() {
	local assertion=$1
	shift
	search -DBFS "$@"
	grep -qE 'errors: [1-9]' out || fail "$*: Spin found no violation, and \"$assertion\" was expected"
	grep '^pan:1: assertion violated' out | tr -d ' ' | grep -qF "$assertion" ||
		fail "$*: Spin found $(grep '^pan:1' out), and \"$assertion\" was expected"
	echo "$*: found; $(cost)"
	spin -t -T "$@" verdict.pml | grep -E '^[0-9]+ [a-z]+:' | sed 's/^/    /'
}

# Properties 1 and 3, then 2 and 3: first with long stops, then with shorter stops and a longer run.
holds "never early, no lost task"
holds "never kept, no lost task" -DKEPT
holds "never early, no lost task, longer" -DHORIZON=16 -DSTOPS=4
holds "never kept, no lost task, longer" -DHORIZON=16 -DSTOPS=4 -DKEPT

early='now>=(arrived+' # property 1
finds "$early" -DASSUME_NEXT_TICK
finds "$early" -DTENTATIVE_BOUND
finds "$early" -DSTAMP_LOWER_BOUND
finds "$early" -DNO_QUESTION
finds '((queue>0)||inTask)' -DLOST_TASK
finds '((queue==0)&&!(inTask))' -DCLEARED_FIRST
finds '(dueAt==due)' -DUNPUBLISHED

finds '!(open)' -DNEVER_CLOSED
finds '>now)' -DNEVER_SAVED
finds 'silence<=6' -DKEPT -DALLOWED=6 -DHORIZON=14 -DSTOPS=4
