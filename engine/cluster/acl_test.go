package cluster

import (
	"slices"
	"strings"
	"testing"
)

func TestPermissions(t *testing.T) {
	closed := Permissions{Admins: []string{"root"}, Users: []string{"ann", "bob", "cy", "dee"}, Supervisors: []string{"sup"}}
	open := Permissions{Admins: []string{"root"}, Supervisors: []string{"sup"}}
	wc := Audience{Owner: "ann", Users: []string{"bob"}, Readers: []string{"cy"}}
	for _, c := range []struct {
		user  string
		class Class
		open  bool // without nimbus.users
		names bool // with them
	}{
		{"root", ClassUser, true, true}, {"root", ClassTopology, true, true}, {"root", ClassReadOnly, true, true}, {"root", ClassSupervisor, true, true},
		{"ann", ClassUser, true, true}, {"ann", ClassTopology, true, true}, {"ann", ClassReadOnly, true, true},
		{"bob", ClassTopology, true, true}, {"bob", ClassReadOnly, true, true},
		{"cy", ClassTopology, false, false}, {"cy", ClassReadOnly, true, true}, {"cy", ClassUser, true, true},
		{"dee", ClassTopology, false, false}, {"dee", ClassReadOnly, false, false}, {"dee", ClassSupervisor, true, true},
		{"sup", ClassSupervisor, true, true}, {"sup", ClassUser, true, false}, {"sup", ClassTopology, false, false},
		{"eve", ClassUser, true, false}, {"eve", ClassSupervisor, true, false}, {"eve", ClassReadOnly, false, false}, {"eve", ClassTopology, false, false},
	} {
		for name, p := range map[string]Permissions{"open": open, "closed": closed} {
			want := c.open
			if name == "closed" {
				want = c.names
			}
			err := p.Allow(c.user, c.class, "wc", wc)
			if (err == nil) != want {
				t.Errorf("%s, %s class of %s: error %v, want allowed %v", name, c.user, c.class, err, want)
			}
			if err != nil && !strings.Contains(err.Error(), `"`+c.user+`"`) {
				t.Errorf("the error %v does not name %s", err, c.user)
			}
		}
	}
	if err := open.Allow("eve", Class("else"), "wc", wc); err == nil {
		t.Error("a class that does not exist was allowed")
	}
}

func TestEveryVerbHasAClassOrAList(t *testing.T) {
	for _, verb := range []string{VerbCheck, VerbSubmit, VerbKill, VerbActivate, VerbDeactivate, VerbRebalance, VerbList, VerbStatus, VerbSupervisors,
		VerbHealth, VerbLogLevel, VerbCredentials, VerbLogs, VerbSavepoint, VerbRollback, VerbHead, VerbConfig, VerbBlobCreated, VerbBlobs} {
		if _, ok := ClassOf(verb); !ok {
			t.Errorf("%s has no class", verb)
		}
	}
}

func TestBlobLists(t *testing.T) {
	entries, err := ParseBlobACL([]string{"u:ann:rwa", "u:bob:r--", "u:cy:a", "o::--"})
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
	for _, e := range entries {
		texts = append(texts, e.String())
	}
	if want := []string{"u:ann:rwa", "u:bob:r--", "u:cy:--a", "o::---"}; !slices.Equal(texts, want) {
		t.Errorf("entries %q, want %q", texts, want)
	}
	for _, wrong := range []string{"", "u:ann", "u::r", "o:ann:r", "x:ann:r", "u:ann:rx", "u:ann:rr", "u:a:b:r", "r--"} {
		if _, err := ParseBlobACL([]string{wrong}); err == nil || !strings.Contains(err.Error(), "it must be u:USER:rwa, or o::rwa") {
			t.Errorf("%q: error %v", wrong, err)
		}
	}
	if _, err := ParseBlobACL([]string{"o::r", "u:a:r", "o::w"}); err == nil || !strings.Contains(err.Error(), "an entry for the same user") {
		t.Errorf("twice: error %v", err)
	}
}

func TestBlobAccess(t *testing.T) {
	p := Permissions{Admins: []string{"root"}}
	b := BlobRecord{Key: "k", Owner: "ann", ACL: []string{"u:bob:rw-", "u:cy:---", "o::r--"}}
	for _, c := range []struct {
		user string
		may  string
	}{
		{"root", "rwa"}, {"ann", "rwa"}, {"bob", "rw"}, {"cy", ""}, {"dee", "r"}, {"", "r"},
	} {
		for i, letter := range []string{"r", "w", "a"} {
			err := p.AllowBlob(c.user, Access(1<<i), b)
			if (err == nil) != strings.Contains(c.may, letter) {
				t.Errorf("%s to %q: error %v", letter, c.user, err)
			}
		}
	}
	if err := p.AllowBlob("dee", AccessRead, BlobRecord{Key: "k", Owner: "ann"}); err == nil {
		t.Error("without a list others may read")
	}
	if err := p.AllowBlob("dee", AccessRead, BlobRecord{Key: "k", Owner: "ann", ACL: []string{"broken"}}); err == nil {
		t.Error("a list that cannot be read lets others in")
	}
}
