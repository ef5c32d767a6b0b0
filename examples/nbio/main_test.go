package main

import (
	"testing"

	"github.com/idlewheel/idlewheel/examples/internal/recipe"
)

func TestMain(m *testing.M) { recipe.Main(m, main) }

func TestEngine(t *testing.T) { recipe.TestEngine(t) }
