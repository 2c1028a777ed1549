// Package config holds the one table of configuration keys, and the values that a
// run was given for them.
//
// Keys keep their Storm and JStorm names. The table lists only keys that act; a key
// that is not in it is refused, and so is a value of another type. Keys that begin
// with "user." belong to the topology's author and pass through with any value.
//
// A [Values] is one layer, or several merged: the defaults, the configuration file,
// what the topology's code sets, and -c on the command line, each over the one
// before.
package config

//go:generate go test -run TestReferencePageIsFresh -rewrite .
