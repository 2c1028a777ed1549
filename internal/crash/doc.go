// Package crash kills whole processes and checks what they leave behind: at every
// named step of the commit protocol, at random moments, by interrupts, and with
// damaged checkpoints. All of it is in its tests; the program that dies is in victim.
package crash
