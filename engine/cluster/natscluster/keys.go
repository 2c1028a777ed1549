package natscluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nkeys"
)

// Keys make credentials for the clients of a NATS server that trusts them. They are an
// operator, who signs accounts; the account of the cluster, who signs its users; and the
// system account, which servers need among themselves.
//
//	DIR/operator.jwt  account.jwt  system.jwt    what servers are given; no secrets
//	DIR/operator.nk   account.nk   system.nk     secrets, readable by their owner alone
//
// Nimbus makes users and so needs account.nk; a server needs none of the secrets.
type Keys struct {
	// Operator, Account and System are signed claims, for the server.
	Operator, Account, System string

	account nkeys.KeyPair // nil: users cannot be made
}

const (
	tokenMode  = 0o644
	secretMode = 0o600
)

// MakeKeys makes keys in a folder that is not there yet, or empty.
func MakeKeys(dir string) (*Keys, error) {
	if err := makeKeys(dir); err != nil {
		return nil, fmt.Errorf("make the keys of a cluster in %s: %w", dir, err)
	}
	return ReadKeys(dir)
}

func makeKeys(dir string) error {
	var pairs [3]nkeys.KeyPair
	var public [3]string
	for i, create := range []func() (nkeys.KeyPair, error){nkeys.CreateOperator, nkeys.CreateAccount, nkeys.CreateAccount} {
		pair, err := create()
		if err == nil {
			public[i], err = pair.PublicKey()
		}
		if err != nil {
			return err
		}
		pairs[i] = pair
	}
	operator := jwt.NewOperatorClaims(public[0])
	operator.Name, operator.SystemAccount = "isobar", public[2]
	account := jwt.NewAccountClaims(public[1])
	account.Name = "isobar"
	account.Limits.JetStreamLimits = jwt.JetStreamLimits{
		MemoryStorage: jwt.NoLimit, DiskStorage: jwt.NoLimit, Streams: jwt.NoLimit, Consumer: jwt.NoLimit,
	}
	system := jwt.NewAccountClaims(public[2])
	system.Name = "system"

	work, err := os.MkdirTemp(filepath.Dir(filepath.Clean(dir)), ".keys-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }() // it is gone if all went well
	for i, claims := range []jwt.Claims{operator, account, system} {
		token, err := claims.Encode(pairs[0])
		if err != nil {
			return err
		}
		seed, err := pairs[i].Seed()
		if err != nil {
			return err
		}
		name := filepath.Join(work, []string{"operator", "account", "system"}[i])
		if err := errors.Join(writeFile(name+".jwt", []byte(token), tokenMode), writeFile(name+".nk", seed, secretMode)); err != nil {
			return err
		}
	}
	return os.Rename(work, dir) // fails if there is something in it
}

// writeFile writes a new file so that it is durable.
func writeFile(name string, data []byte, mode fs.FileMode) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(append(data, '\n'))
	return errors.Join(err, f.Sync(), f.Close())
}

// ReadKeys reads what MakeKeys has made. Without the secret of the account it returns
// keys that a server can trust and that cannot make users.
func ReadKeys(dir string) (*Keys, error) {
	fail := func(err error) (*Keys, error) { return nil, fmt.Errorf("read the keys of a cluster: %w", err) }
	k := &Keys{}
	for name, to := range map[string]*string{"operator.jwt": &k.Operator, "account.jwt": &k.Account, "system.jwt": &k.System} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return fail(err)
		}
		*to = strings.TrimSpace(string(text))
	}
	seed, err := os.ReadFile(filepath.Join(dir, "account.nk"))
	if errors.Is(err, fs.ErrNotExist) {
		return k, nil
	}
	if err != nil {
		return fail(err)
	}
	if k.account, err = nkeys.FromSeed(bytes.TrimSpace(seed)); err != nil {
		return fail(fmt.Errorf("account.nk in %s: %w", dir, err))
	}
	claims, err := jwt.DecodeAccountClaims(k.Account)
	if err != nil {
		return fail(fmt.Errorf("account.jwt in %s: %w", dir, err))
	}
	if public, err := k.account.PublicKey(); err != nil || public != claims.Subject {
		return fail(errors.Join(err, fmt.Errorf("account.nk in %s is not the secret of account.jwt", dir)))
	}
	return k, nil
}

// EnsureKeys reads the keys in a folder, and makes them if there are none.
func EnsureKeys(dir string) (*Keys, error) {
	k, err := ReadKeys(dir)
	if !errors.Is(err, fs.ErrNotExist) {
		return k, err
	}
	if entries, err := os.ReadDir(dir); err == nil && len(entries) > 0 {
		return nil, fmt.Errorf("make the keys of a cluster in %s: there is something in it, and not all of a cluster's keys", dir)
	}
	k, err = MakeKeys(dir)
	if errors.Is(err, fs.ErrExist) { // another process was faster
		return ReadKeys(dir)
	}
	return k, err
}

// Mint makes a client and returns its credentials, the text of a file that
// cluster.StoreAccess names and that its owner alone may read. They are good for a time,
// for ever if it is 0. A topology's give rights on its own bucket only, whose name is
// never used again, so they are worth nothing once it has been killed.
func (k *Keys) Mint(role Role, name string, good time.Duration) (string, error) {
	fail := func(err error) (string, error) {
		return "", fmt.Errorf("make credentials of %s %q: %w", role, name, err)
	}
	if k.account == nil {
		return fail(errors.New("the secret of the account, account.nk, is not here"))
	}
	p, err := PermissionsOf(role, name)
	if err != nil {
		return fail(err)
	}
	pair, err := nkeys.CreateUser()
	if err != nil {
		return fail(err)
	}
	public, err := pair.PublicKey()
	if err != nil {
		return fail(err)
	}
	seed, err := pair.Seed()
	if err != nil {
		return fail(err)
	}
	claims := jwt.NewUserClaims(public)
	claims.Name = string(role) + ":" + name
	if good > 0 {
		claims.Expires = time.Now().Add(good).Unix()
	}
	claims.Permissions.Pub.Allow.Add(p.Publish...)
	claims.Permissions.Pub.Deny.Add(p.PublishDeny...)
	claims.Permissions.Sub.Allow.Add(p.Subscribe...)
	token, err := claims.Encode(k.account)
	if err != nil {
		return fail(err)
	}
	text, err := jwt.FormatUserConfig(token, seed)
	if err != nil {
		return fail(err)
	}
	return string(text), nil
}

// Minter makes the credentials of topologies, as nimbus wants it.
type Minter struct{ Keys *Keys }

// Mint returns credentials of a topology's processes.
func (m Minter) Mint(_ context.Context, id string) (string, error) {
	return m.Keys.Mint(RoleTopology, id, 0)
}

// Revoke has nothing to do once the bucket of the topology has been deleted: there is
// nothing else that its credentials are good for, and no other topology gets its id.
func (m Minter) Revoke(context.Context, string) error { return nil }
