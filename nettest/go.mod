module github.com/idlewheel/idlewheel/nettest

go 1.26.0

replace github.com/idlewheel/idlewheel => ../

require (
	github.com/coder/websocket v1.8.15
	github.com/idlewheel/idlewheel v0.0.0-00010101000000-000000000000
	github.com/mochi-mqtt/server/v2 v2.7.9
	github.com/stretchr/testify v1.11.1
	golang.org/x/sync v0.24.0
	google.golang.org/grpc v1.85.0
)

require (
	github.com/davecgh/go-spew v1.1.1 // indirect
	github.com/gorilla/websocket v1.5.0 // indirect
	github.com/pmezard/go-difflib v1.0.0 // indirect
	github.com/rs/xid v1.4.0 // indirect
	golang.org/x/net v0.60.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
	golang.org/x/text v0.42.0 // indirect
	golang.org/x/time v0.13.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20260817212433-ac3dfec99bb1 // indirect
	google.golang.org/protobuf v1.36.12 // indirect
	gopkg.in/check.v1 v1.0.0-20180628173108-788fd7840127 // indirect
	gopkg.in/yaml.v3 v3.0.1 // indirect
)
