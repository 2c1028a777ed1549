// Package daemonconf holds the configuration of the daemons of a cluster: nimbus and the
// supervisors. Keys keep their Storm and JStorm names where there is one that fits.
//
// Values are merged in this order, each over the one before: the default, the file, the
// environment (nimbus.lease.secs is ISOBAR_NIMBUS_LEASE_SECS), and -c KEY=VALUE. The keys of
// topologies may be set too: they are what topologies get that do not say otherwise.
package daemonconf

//go:generate go test -run TestReferencePageIsFresh -rewrite .
