module github.com/idlewheel/idlewheel/bench

go 1.26

require (
	github.com/RussellLuo/timingwheel v0.0.0-20220218152713-54845bda3108
	github.com/antlabs/timer v0.1.4
	github.com/idlewheel/idlewheel v0.0.0
)

require github.com/antlabs/stl v0.0.2 // indirect

replace github.com/idlewheel/idlewheel => ..
