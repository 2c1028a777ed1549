package natscluster

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/isobar-io/isobar/engine/cluster"
	"github.com/isobar-io/isobar/engine/cluster/natsserver"
	"github.com/isobar-io/isobar/engine/cluster/natsserver/certtest"
)

// serverOptions is the environment variable that makes the test program a server.
const serverOptions = "ISOBAR_TEST_SERVER"

func TestMain(m *testing.M) {
	if text := os.Getenv(serverOptions); text != "" {
		if err := serve(text); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// serve runs a server that says on each line of its input whether it leads, and ends with it.
func serve(text string) error {
	var opts natsserver.Options
	if err := json.Unmarshal([]byte(text), &opts); err != nil {
		return err
	}
	opts.Log = quiet
	s, err := natsserver.Start(opts)
	if err != nil {
		return err
	}
	fmt.Println(s.ClientURL())
	for asked := bufio.NewScanner(os.Stdin); asked.Scan(); {
		fmt.Println(s.Leads())
	}
	return s.Shutdown()
}

// node is a server in a process of its own.
type node struct {
	process *exec.Cmd
	ask     io.WriteCloser
	answers *bufio.Scanner
}

// group is three servers that keep the same data.
type group struct {
	t      *testing.T
	opts   []natsserver.Options
	nodes  []*node // nil: killed
	access cluster.StoreAccess
}

func newGroup(t *testing.T) *group {
	t.Helper()
	keys, err := MakeKeys(filepath.Join(t.TempDir(), "keys"))
	if err != nil {
		t.Fatal(err)
	}
	const size = 3
	cert, key := certtest.Make(t)
	g := &group{t: t, nodes: make([]*node, size)}
	t.Cleanup(func() {
		for i := range g.nodes {
			g.kill(i)
		}
	})
	var routes []string
	for range size {
		routes = append(routes, net.JoinHostPort("127.0.0.1", strconv.Itoa(freePort(t))))
	}
	for i, route := range routes {
		o := natsserver.Options{
			Name: fmt.Sprint("n", i), StoreDir: filepath.Join(t.TempDir(), "nats"), Port: freePort(t),
			Group: natsserver.Group{Name: "g", Routes: routes},
			TLS:   natsserver.TLS{CA: cert, Cert: cert, Key: key},
			Trust: &natsserver.Trust{Operator: keys.Operator, Accounts: []string{keys.Account, keys.System}},
		}
		_, port, err := net.SplitHostPort(route)
		if err == nil {
			o.Group.Port, err = strconv.Atoi(port)
		}
		if err != nil {
			t.Fatal(err)
		}
		g.opts = append(g.opts, o)
		g.access.URLs = append(g.access.URLs, g.start(i))
	}
	g.access.CA, g.access.Creds = cert, (&site{t: t, keys: keys}).creds(RoleNimbus, "nimbus")
	return g
}

// start starts a server and returns where it is.
func (g *group) start(i int) string {
	g.t.Helper()
	text, err := json.Marshal(g.opts[i])
	if err != nil {
		g.t.Fatal(err)
	}
	n := &node{process: exec.Command(os.Args[0])}
	n.process.Env = append(os.Environ(), serverOptions+"="+string(text))
	n.process.Stderr = os.Stderr
	out, err := n.process.StdoutPipe()
	if err != nil {
		g.t.Fatal(err)
	}
	n.answers = bufio.NewScanner(out)
	if n.ask, err = n.process.StdinPipe(); err != nil {
		g.t.Fatal(err)
	}
	if err := n.process.Start(); err != nil {
		g.t.Fatal(err)
	}
	g.nodes[i] = n
	if !n.answers.Scan() {
		g.t.Fatal("a server does not start")
	}
	return n.answers.Text()
}

func (g *group) kill(i int) {
	if n := g.nodes[i]; n != nil {
		g.nodes[i] = nil
		_ = n.process.Process.Kill() // it may have ended by itself
		_ = n.process.Wait()         // which tells that it was killed
	}
}

func (g *group) leader() int {
	g.t.Helper()
	for i, n := range g.nodes {
		if n == nil {
			continue
		}
		if _, err := fmt.Fprintln(n.ask); err != nil || !n.answers.Scan() {
			g.t.Fatalf("server %d does not answer: %v", i, err)
		}
		if n.answers.Text() == "true" {
			return i
		}
	}
	return -1
}

// freePort returns a port that nobody uses now.
func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// TestGroup: a group of three goes on without its leader, says that it does not answer
// when only one is left, and answers again with two.
func TestGroup(t *testing.T) {
	if testing.Short() {
		t.Skip("elections take seconds")
	}
	g := newGroup(t)
	await(t, "a leader", func() bool { return g.leader() >= 0 })
	store, err := Open(g.access, Options{Replicas: 3, Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	var b cluster.Bucket
	persist(t, func() (err error) {
		b, err = store.Bucket(brief(t), "b", true)
		return err
	})
	persist(t, func() (err error) {
		_, err = b.Put(brief(t), "k", []byte("before"))
		return err
	})
	entries, err := b.Watch(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	until := func(value string) {
		t.Helper()
		for {
			select {
			case e := <-entries:
				if e.Key == "k" && e.Value == nil {
					t.Fatal("a watch says that a key is deleted that is there")
				}
				if e.Key == "k" && string(e.Value) == value {
					return
				}
			case <-patient(t).Done():
				t.Fatalf("%q is not watched", value)
			}
		}
	}
	until("before")

	g.kill(g.leader())
	began := time.Now()
	persist(t, func() error {
		e, err := b.Get(brief(t), "k")
		if err == nil {
			_, err = b.Update(brief(t), "k", []byte("after"), e.Revision)
		}
		return err
	})
	t.Logf("written again after %s", time.Since(began).Round(time.Millisecond))
	until("after")
	await(t, "a leader", func() bool { return g.leader() >= 0 })

	second := g.leader()
	g.kill(second)
	await(t, "silence", func() bool {
		_, _ = b.Put(brief(t), "unheard", nil) // nobody can take it
		return !store.Connected()
	})
	g.start(second)
	await(t, "an answer", store.Connected)
	persist(t, func() (err error) {
		_, err = b.Put(brief(t), "k", []byte("in the end"))
		return err
	})
	until("in the end")
}

// brief bounds one attempt.
func brief(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 2*answerTimeout)
	t.Cleanup(cancel)
	return ctx
}
