package main

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"time"
)

// machine describes the machine on which the figures were measured.
type machine struct {
	CPU    string `json:"cpu"`
	Cores  int    `json:"cores"`
	Procs  int    `json:"gomaxprocs"`
	Memory string `json:"memory"`
	OS     string `json:"os"`
	Kernel string `json:"kernel"`
	Go     string `json:"go"`
	Load   string `json:"load"` // averages of 1, 5 and 15 minutes before the start
	Date   string `json:"date"`
}

// thisMachine returns the description of this machine. On systems other than Linux some fields are
// "unknown".
func thisMachine() machine {
	return machine{
		CPU:    field("/proc/cpuinfo", "model name", ":"),
		Cores:  runtime.NumCPU(),
		Procs:  runtime.GOMAXPROCS(0),
		Memory: gibibytes(field("/proc/meminfo", "MemTotal", ":")),
		OS:     strings.Trim(field("/etc/os-release", "PRETTY_NAME", "="), `"`),
		Kernel: runtime.GOOS + "/" + runtime.GOARCH + " " + firstWords("/proc/sys/kernel/osrelease", 1),
		Go:     runtime.Version(),
		Load:   firstWords("/proc/loadavg", 3),
		Date:   time.Now().UTC().Format("2006-01-02 15:04 UTC"),
	}
}

const unknown = "unknown"

// field returns the value of the first line "key separator value" of a file.
func field(path, key, separator string) string {
	f, err := os.Open(path)
	if err != nil {
		return unknown
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		k, v, ok := strings.Cut(lines.Text(), separator)
		if ok && strings.TrimSpace(k) == key {
			return strings.TrimSpace(v)
		}
	}
	return unknown
}

func firstWords(path string, n int) string {
	b, err := os.ReadFile(path)
	words := strings.Fields(string(b))
	if err != nil || len(words) < n {
		return unknown
	}
	return strings.Join(words[:n], " ")
}

func gibibytes(s string) string {
	var kB float64
	if _, err := fmt.Sscanf(s, "%g kB", &kB); err != nil {
		return s
	}
	return fmt.Sprintf("%.1f GiB", kB/(1<<20))
}

// versions returns the version of each subject that has one.
func versions(netty nettyProgram) map[string]string {
	modules := map[string]string{stdModule: runtime.Version()}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, d := range info.Deps {
			modules[d.Path] = d.Version
			if d.Replace != nil {
				modules[d.Path] = "this tree"
			}
		}
	}
	list := map[string]string{}
	for _, c := range candidates() {
		switch {
		case c.netty && netty.version != "":
			list[c.name] = netty.version
		case modules[c.module] != "":
			list[c.name] = modules[c.module]
		}
	}
	return list
}
