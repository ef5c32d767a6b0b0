package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/idlewheel/idlewheel/bench/internal/rounds"
)

const (
	nettyName = "Netty HashedWheelTimer"
	nettyNote = "In a Java VM of its own. A call only queues the change; a worker files it at the next tick, on another core. " +
		"Reschedule is `cancel` and `newTimeout`. Processor times include those of the VM."

	nettyJars = "/usr/share/java" // of Debian's libnetty-java
)

// A nettyProcess runs NettyBench, which answers each line of input.
type nettyProcess struct {
	version string
	cmd     *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Reader
}

// startNetty compiles and starts a Java source file. An error is the reason why Netty is left out.
func startNetty(source string) (*nettyProcess, error) {
	if _, err := exec.LookPath("javac"); err != nil {
		return nil, errors.New("there is no JDK")
	}
	jars, err := filepath.Glob(filepath.Join(nettyJars, "netty-common-*.jar"))
	if err != nil || len(jars) == 0 {
		return nil, errors.New("there is no netty-common jar in " + nettyJars)
	}
	path := strings.Join([]string{jars[0], filepath.Join(nettyJars, "jctools-core.jar")}, string(filepath.ListSeparator))
	p := &nettyProcess{
		version: strings.TrimSuffix(strings.TrimPrefix(filepath.Base(jars[0]), "netty-common-"), ".jar"),
		cmd:     exec.Command("java", "-cp", path, source),
	}
	p.cmd.Stderr = os.Stderr
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.out = bufio.NewReader(out)
	return p, p.cmd.Start()
}

func (p *nettyProcess) measure(l load) (f rounds.Figures, err error) {
	if _, err := fmt.Fprintln(p.in, l.n, l.passes, int64(l.expiry)); err != nil {
		return nil, err
	}
	line, err := p.out.ReadBytes('\n')
	if err != nil {
		return nil, err
	}
	return f, json.Unmarshal(line, &f)
}

// close ends the process.
func (p *nettyProcess) close() error { return errors.Join(p.in.Close(), p.cmd.Wait()) }
