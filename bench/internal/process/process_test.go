package process

import (
	"os/exec"
	"testing"
)

func TestAProgramAnswers(t *testing.T) {
	p, err := Start(exec.Command("cat"))
	if err != nil {
		t.Fatal(err)
	}
	var answer struct{ N int }
	if err := p.Ask(`{"n": 7}`, &answer); err != nil || answer.N != 7 {
		t.Errorf("the answer is %d, %v; want 7", answer.N, err)
	}
	if err := p.Ask("no JSON", &answer); err == nil {
		t.Error("no error about an answer that is not JSON")
	}
	if used := p.CPU(); used <= 0 {
		t.Errorf("the program has used %v", used)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

func TestUseOfThisProcess(t *testing.T) {
	kept := make([]byte, 1<<20)
	before := CPU()
	for range 20 {
		if HeapBytes() < int64(len(kept)) {
			t.Fatal("less than what is in use")
		}
	}
	clear(kept)
	if CPU() <= before {
		t.Error("20 garbage collections took no time")
	}
}
