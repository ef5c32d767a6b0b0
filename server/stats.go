package server

// Stats says how a Server copes. Counts are since Run was called. What the Reaper has seen and done is in its own Stats.
type Stats struct {
	// Connections is how many connections are open.
	Connections int
	// MaxConnections is how many connections may be open, 0 if any number. It shrinks while descriptors are short.
	MaxConnections int
	// MaxDescriptors is how many descriptors the process may have, 0 if that is not known.
	MaxDescriptors int
	// Restarts is how many engines were started after one that had died.
	Restarts uint64
	// Paused reports whether accepting is paused, and Pauses how often it was for want of room.
	Paused bool
	Pauses uint64
	// Draining reports whether connections are let go because the server is to stop: Drain.Delay is over.
	Draining bool
	// Rejected are the connections that were closed as they came, of which the handler was told nothing.
	Rejected Rejected
	// Pressure is how short resources are now.
	Pressure Pressure
}

// Rejected counts connections that were rejected, by the reason.
type Rejected struct {
	Source         uint64 // its source had or opened too many, see SourceLimits
	AcceptRate     uint64 // more came than Config.AcceptRate
	NoDescriptors  uint64 // it had one of the last descriptors
	MaxConnections uint64 // as many were open as may be, or the server drained
}

// Total returns the sum over all reasons.
func (r Rejected) Total() uint64 { return r.Source + r.AcceptRate + r.NoDescriptors + r.MaxConnections }

// Stats returns a snapshot. It makes a few system calls.
func (s *Server) Stats() Stats {
	st := Stats{
		Connections:    s.reaper.Connections(),
		MaxConnections: s.reaper.Config().MaxConnections,
		MaxDescriptors: s.budget.allowed,
		Restarts:       s.restarts.Load(),
		Pauses:         s.pauses.Load(),
		Rejected: Rejected{
			Source:         s.door.rejected[tooManyOfSource].Load(),
			AcceptRate:     s.door.rejected[acceptRate].Load(),
			NoDescriptors:  s.door.rejected[noDescriptors].Load(),
			MaxConnections: s.reaper.Stats().Refused,
		},
	}
	if h := s.host.Load(); h != nil {
		st.Paused, st.Draining, st.Pressure = h.gate.closed.Load(), h.draining.Load(), h.pressure()
	}
	return st
}
