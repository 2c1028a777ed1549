package cluster

import (
	"fmt"
	"slices"
	"strings"
)

// Class is what a request is about, as far as permission goes.
type Class string

// The classes.
const (
	ClassUser       Class = "user"       // submit, upload, see what the cluster is
	ClassSupervisor Class = "supervisor" // what supervisors ask
	ClassTopology   Class = "topology"   // change a topology, or read its logs
	ClassReadOnly   Class = "read-only"  // see how a topology is
)

// classes are those of the verbs. Those about one blob have the blob's own list.
var classes = map[string]Class{
	VerbCheck: ClassUser, VerbSubmit: ClassUser, VerbList: ClassUser, VerbSupervisors: ClassUser,
	VerbForget:      ClassUser,
	VerbBlobCreated: ClassUser, VerbBlobs: ClassUser,
	VerbHealth: ClassSupervisor, VerbConfig: ClassSupervisor,
	VerbKill: ClassTopology, VerbActivate: ClassTopology, VerbDeactivate: ClassTopology,
	VerbRebalance: ClassTopology, VerbLogLevel: ClassTopology, VerbCredentials: ClassTopology,
	VerbLogs: ClassTopology, VerbSavepoint: ClassTopology, VerbRollback: ClassTopology,
	VerbStatus: ClassReadOnly, VerbHead: ClassReadOnly,
}

// ClassOf returns the class of a verb.
func ClassOf(verb string) (Class, bool) {
	c, ok := classes[verb]
	return c, ok
}

// Permissions say who may do what in a cluster: nimbus.admins, nimbus.users and
// nimbus.supervisor.users.
type Permissions struct {
	Admins      []string // may do everything
	Users       []string // may submit; nobody: everybody may
	Supervisors []string // may ask what supervisors ask
}

// Audience says who may do what with one topology: topology.users and
// topology.readonly.users. Its owner is always among the users.
type Audience struct {
	Owner   string
	Users   []string
	Readers []string
}

// Admin reports whether a user may do everything.
func (p Permissions) Admin(user string) bool { return slices.Contains(p.Admins, user) }

// Allow says whether a user may do what is of a class; about is the topology that it is
// about, if it is about one. The error says who may.
func (p Permissions) Allow(user string, class Class, topology string, about Audience) error {
	if p.Admin(user) {
		return nil
	}
	switch class {
	case ClassSupervisor:
		if slices.Contains(p.Supervisors, user) {
			return nil
		}
		fallthrough
	case ClassUser:
		if len(p.Users) == 0 || slices.Contains(p.Users, user) {
			return nil
		}
		return fmt.Errorf("user %q may not use this cluster: nimbus.users does not name him", user)
	case ClassReadOnly:
		if slices.Contains(about.Readers, user) {
			return nil
		}
		fallthrough
	case ClassTopology:
		if user == about.Owner || slices.Contains(about.Users, user) {
			return nil
		}
	}
	key := "topology.users"
	if class == ClassReadOnly {
		key = "topology.users or topology.readonly.users"
	}
	return fmt.Errorf("user %q may not do this with topology %s: it belongs to %q, and its %s does not name him", user, topology, about.Owner, key)
}

// Access are the bits of a blob's list of who may do what.
type Access uint8

// The bits, which are also Storm's.
const (
	AccessRead  Access = 1
	AccessWrite Access = 2
	AccessAdmin Access = 4 // change the list
)

// String returns the bits as a list has them.
func (a Access) String() string {
	text := []byte("---")
	for i, letter := range []byte("rwa") {
		if a&(1<<i) != 0 {
			text[i] = letter
		}
	}
	return string(text)
}

// BlobEntry is one entry of such a list: what a user may do, or, if User is empty, all others.
type BlobEntry struct {
	User   string
	Access Access
}

// String returns the entry as it is written.
func (e BlobEntry) String() string {
	if e.User == "" {
		return "o::" + e.Access.String()
	}
	return "u:" + e.User + ":" + e.Access.String()
}

// ParseBlobACL reads a list: u:USER:rwa or o::r--. A bit that is missing or '-' is not given.
func ParseBlobACL(list []string) ([]BlobEntry, error) {
	var entries []BlobEntry
	for _, text := range list {
		e, err := parseBlobEntry(text)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(entries, func(o BlobEntry) bool { return o.User == e.User }) {
			return nil, fmt.Errorf("access %q: there is an entry for the same user before it", text)
		}
		entries = append(entries, e)
	}
	return entries, nil
}

func parseBlobEntry(text string) (BlobEntry, error) {
	parts := strings.Split(text, ":")
	wrong := fmt.Errorf("access %q: it must be u:USER:rwa, or o::rwa for all others, with '-' for what is not allowed", text)
	if len(parts) != 3 || (parts[0] == "u") == (parts[1] == "") || parts[0] != "u" && parts[0] != "o" {
		return BlobEntry{}, wrong
	}
	e := BlobEntry{User: parts[1]}
	for _, letter := range parts[2] {
		bit := strings.IndexRune("rwa", letter)
		switch {
		case letter == '-':
		case bit < 0 || e.Access&(1<<bit) != 0:
			return BlobEntry{}, wrong
		default:
			e.Access |= 1 << bit
		}
	}
	return e, nil
}

// AllowBlob says whether a user may do something with a blob. Who has made it may do all,
// and so may admins.
func (p Permissions) AllowBlob(user string, want Access, b BlobRecord) error {
	if p.Admin(user) || user == b.Owner {
		return nil
	}
	entries, err := ParseBlobACL(b.ACL)
	if err != nil {
		return fmt.Errorf("blob %q: %w", b.Key, err)
	}
	var others Access
	for _, e := range entries {
		switch {
		case e.User == user && e.User != "":
			if e.Access&want == want {
				return nil
			}
			return refuseBlob(user, want, b)
		case e.User == "":
			others = e.Access
		}
	}
	if others&want == want {
		return nil
	}
	return refuseBlob(user, want, b)
}

func refuseBlob(user string, want Access, b BlobRecord) error {
	return fmt.Errorf("user %q may not do this with blob %q: it takes %s, and the blob, which belongs to %q, has the list %q", user, b.Key, want, b.Owner, b.ACL)
}
