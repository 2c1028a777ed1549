package natscluster

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isobar-io/isobar/engine/cluster"
)

func TestKeys(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "keys")
	keys, err := MakeKeys(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"operator.nk", "account.nk", "system.nk"} {
		at, err := os.Stat(filepath.Join(dir, name))
		if err != nil || runtime.GOOS != "windows" && at.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, at, err)
		}
	}
	if _, err := MakeKeys(dir); err == nil {
		t.Error("keys are made over others")
	}
	for what, read := range map[string]func(string) (*Keys, error){"read": ReadKeys, "ensure": EnsureKeys} {
		if got, err := read(dir); err != nil || got.Operator != keys.Operator || got.Account != keys.Account || got.System != keys.System {
			t.Errorf("%s: other keys, %v", what, err)
		}
	}
	if err := os.Remove(filepath.Join(dir, "account.nk")); err != nil {
		t.Fatal(err)
	}
	public, err := ReadKeys(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := public.Mint(RoleUser, "alice", 0); err == nil || !strings.Contains(err.Error(), "account.nk") {
		t.Errorf("mint without the secret: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "account.nk"), []byte("SUAKINAIRQ3HYHFPA5GXSMXJV4PVM4BTUW7NKPE4BL7AFRQDWCVQGVVPLQ\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadKeys(dir); err == nil {
		t.Error("a secret of something else is read")
	}
	if err := os.Remove(filepath.Join(dir, "system.jwt")); err != nil {
		t.Fatal(err)
	}
	if _, err := EnsureKeys(dir); err == nil {
		t.Error("keys are made where half of them are")
	}
}

// TestEnsureKeysAtOnce: of several that start at once all have the same keys.
func TestEnsureKeysAtOnce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "keys")
	var all sync.WaitGroup
	got := make([]*Keys, 8)
	for i := range got {
		all.Go(func() {
			var err error
			if got[i], err = EnsureKeys(dir); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	for _, k := range got {
		if k == nil || k.Operator != got[0].Operator {
			t.Error("they have different keys")
		}
	}
}

// TestCredentials: who has none, those of another cluster, or such as are not good any
// more, is not let in; who has renewed them is.
func TestCredentials(t *testing.T) {
	s := newSite(t, true)
	stranger, err := MakeKeys(filepath.Join(t.TempDir(), "keys"))
	if err != nil {
		t.Fatal(err)
	}
	foreign, err := stranger.Mint(RoleNimbus, "nimbus", 0)
	if err != nil {
		t.Fatal(err)
	}
	expired, err := s.keys.Mint(RoleNimbus, "nimbus", time.Nanosecond)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "creds")
	for name, text := range map[string]string{"none": "", "foreign": foreign, "expired": expired} {
		access := cluster.StoreAccess{URLs: []string{"nats://" + s.address()}}
		if text != "" {
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			access.Creds = file
		}
		store, err := Open(access, Options{Log: quiet})
		if err != nil {
			t.Fatal(err)
		}
		await(t, "a refusal", func() bool {
			_, err := store.Bucket(patient(t), "b", true)
			if !errors.Is(err, cluster.ErrUnavailable) && name != "expired" { // it is good to the end of the second
				t.Fatalf("%s: %v", name, err)
			}
			return err != nil && strings.Contains(strings.ToLower(err.Error()), "authorization")
		})
		if name == "foreign" {
			good, err := s.keys.Mint(RoleNimbus, "nimbus", 0)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(good), 0o600); err != nil {
				t.Fatal(err)
			}
			await(t, "a connection with renewed credentials", store.Connected)
		}
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := os.WriteFile(file, []byte("no credentials"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(cluster.StoreAccess{URLs: []string{"nats://" + s.address()}, Creds: file}, Options{}); err == nil {
		t.Error("a file without credentials is taken")
	}
	if _, err := Open(cluster.StoreAccess{}, Options{}); err == nil {
		t.Error("a store without a URL is opened")
	}
}

func TestMinter(t *testing.T) {
	s := newSite(t, true)
	m := Minter{s.keys}
	text, err := m.Mint(t.Context(), wordsID)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "creds")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if i, err := identityOf(file); err != nil || i != (identity{RoleTopology, wordsID}) {
		t.Errorf("credentials of %v, %v", i, err)
	}
	if err := m.Revoke(t.Context(), wordsID); err != nil {
		t.Error(err)
	}
}

// TestUsers: handlers are told people by their names and processes by their roles too.
func TestUsers(t *testing.T) {
	s := newSite(t, true)
	nimbus := s.client(RoleNimbus, "nimbus-1")
	stop, err := nimbus.Serve(cluster.ServiceNimbus, func(_ context.Context, user string, _ []byte) ([]byte, error) { return []byte(user), nil })
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	for i, want := range map[identity]string{
		{RoleUser, "alice@example.com"}: "alice@example.com", {RoleAdmin, "root"}: "root",
		{RoleSupervisor, "a.host:6700"}: "supervisor:a.host:6700", {RoleNimbus, "n 2"}: "n 2",
	} {
		if got, err := s.client(i.role, i.name).Request(patient(t), cluster.ServiceNimbus, nil); err != nil || string(got) != want {
			t.Errorf("%v is %q to handlers, %v; want %q", i, got, err, want)
		}
	}
}

func TestEscape(t *testing.T) {
	seen := map[string]string{}
	for _, text := range []string{"", "a", "A", "a.b", "a=2Eb", "=", "==", "a b", "*", ">", "größe", "\x00\xff", "a-b_c", "x.y.z", "."} {
		token := escape(text)
		if strings.ContainsAny(token, " .*>/\\\t") || seen[token] != "" {
			t.Errorf("%q is escaped as %q, as %q is", text, token, seen[token])
		}
		seen[token] = text + " "
		if back, err := unescape(token); err != nil || back != text {
			t.Errorf("%q comes back as %q, %v", text, back, err)
		}
	}
	for _, token := range []string{"=", "=2", "a=", "=XY", "=-1"} {
		if text, err := unescape(token); err == nil {
			t.Errorf("%q is read as %q", token, text)
		}
	}
}

func TestVersion(t *testing.T) {
	for version, good := range map[string]bool{"2.12.0": true, "2.15.1": true, "3.0.0": true, "2.11.9": false, "1.99.0": false, "": true} {
		if err := checkVersion(version); (err == nil) != good {
			t.Errorf("version %q: %v", version, err)
		}
	}
}

// TestForeignStream: a bucket that somebody else has made is not taken for ours.
func TestForeignStream(t *testing.T) {
	s := newSite(t, false)
	store := s.client("", "")
	c := (&bucket{store: store, place: place{"b"}}).config()
	c.RePublish = nil
	if _, err := store.js.CreateStream(patient(t), c); err != nil {
		t.Fatal(err)
	}
	for _, create := range []bool{true, false} {
		if _, err := store.Bucket(patient(t), "b", create); err == nil || !strings.Contains(err.Error(), "was not made by isobar") {
			t.Errorf("open (create: %v): %v", create, err)
		}
	}
}
