// Package damage spoils the files of a data folder, one at a time and in every way
// that disks and people know, and runs again from what is left: the output is exactly
// right, or the run is refused with an error that names the file. It also runs where
// the disk is full. All of it is in its tests.
package damage
