// Package truth tests whether loadtest tells the truth. Its tests run the built program against
// servers with known faults that keep a record of their own, and compare the report and the exit
// code with the record.
package truth
