module github.com/idlewheel/idlewheel/mutants

go 1.26
