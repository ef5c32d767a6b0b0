module github.com/idlewheel/idlewheel/mutants

go 1.26

require golang.org/x/sync v0.19.0
