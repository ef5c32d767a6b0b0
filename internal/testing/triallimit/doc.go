// Package triallimit tests what a new limit costs: it adds one to a copy of the repository.
package triallimit
