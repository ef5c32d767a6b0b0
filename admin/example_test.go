package admin_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/panjf2000/gnet/v2"

	"github.com/idlewheel/idlewheel/admin"
	"github.com/idlewheel/idlewheel/idle"
)

// The program serves the Handler over HTTP. With package server, set Config.Admin instead.
func ExampleNew() {
	reaper, err := idle.Middleware(&gnet.BuiltinEventEngine{}, idle.Config{ReadTimeout: time.Minute, KeepClosed: 100})
	if err != nil {
		fmt.Println(err)
		return
	}
	handler, err := admin.New(admin.Config{Reaper: reaper, Token: "0123456789abcdef", Open: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	srv := httptest.NewServer(handler) // in a program: handler.NewServer()
	defer srv.Close()

	// The operator changes a timeout, as curl would with
	//	-H "Authorization: Bearer $TOKEN" -d '{"read-timeout":"30s"}' localhost:7080/api/timeouts
	req, err := http.NewRequest("POST", srv.URL+"/api/timeouts", strings.NewReader(`{"read-timeout":"30s"}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	req.Header.Set("Authorization", "Bearer 0123456789abcdef")
	resp, err := srv.Client().Do(req)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	fmt.Println(resp.StatusCode, reaper.Config().ReadTimeout)
	// Output: 200 30s
}
