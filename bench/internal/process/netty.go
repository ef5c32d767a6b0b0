package process

import (
	"errors"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

const jars = "/usr/share/java" // of Debian's libnetty-java

// Netty returns the command that compiles and runs a Java source file, which uses Netty, and the
// version of Netty. An error says what is not installed.
func Netty(source string, args ...string) (cmd *exec.Cmd, version string, err error) {
	if _, err := exec.LookPath("javac"); err != nil {
		return nil, "", errors.New("there is no JDK")
	}
	all, err := filepath.Glob(filepath.Join(jars, "netty-*.jar"))
	i := slices.IndexFunc(all, func(jar string) bool { return strings.HasPrefix(filepath.Base(jar), "netty-common-") })
	if err != nil || i < 0 {
		return nil, "", errors.New("there is no netty-common jar in " + jars)
	}
	version = strings.TrimSuffix(strings.TrimPrefix(filepath.Base(all[i]), "netty-common-"), ".jar")
	path := strings.Join(append(all, filepath.Join(jars, "jctools-core.jar")), string(filepath.ListSeparator))
	return exec.Command("java", slices.Concat([]string{"-cp", path, source}, args)...), version, nil
}
