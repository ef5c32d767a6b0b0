//go:build !unix

package server

// raiseDescriptors returns 0: there is no such limit here.
func raiseDescriptors() (int, error) { return 0, nil }

func descriptorsInUse() int { return 0 }

func maxBacklog() int { return 0 }

func freeDescriptor() (int, bool) { return 0, true }
