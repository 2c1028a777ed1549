package natscluster

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/isobar-io/isobar/engine/cluster"
)

const (
	prefix        = "isobar-"
	bucketStreams = "KV_" + prefix
	objectStreams = prefix + "objects-"

	changedPrefix = "isobar.changed."
	objectPrefix  = "isobar.objects."
	servicePrefix = "isobar.svc."
	replyPrefix   = "isobar.reply."
	inboxPrefix   = "isobar.inbox."
)

// escape writes any text as one token of a subject, which is also good as a part of a
// stream's name: letters, digits, '-' and '_' stay, other bytes become =XX. Two texts
// never become the same.
func escape(text string) string {
	var b strings.Builder
	for i := range len(text) {
		c := text[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '_':
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "=%02X", c)
		}
	}
	return b.String()
}

// unescape is the inverse of escape.
func unescape(token string) (string, error) {
	var b strings.Builder
	for i := 0; i < len(token); i++ {
		if token[i] != '=' {
			b.WriteByte(token[i])
			continue
		}
		if i+3 > len(token) {
			return "", fmt.Errorf("name %q: it ends within an escaped byte", token)
		}
		c, err := strconv.ParseUint(token[i+1:i+3], 16, 8)
		if err != nil {
			return "", fmt.Errorf("name %q: an escaped byte is %q", token, token[i:i+3])
		}
		b.WriteByte(byte(c))
		i += 2
	}
	return b.String(), nil
}

// place names what belongs to a bucket.
type place struct{ bucket string }

func (p place) token() string             { return escape(p.bucket) }
func (p place) stream() string            { return bucketStreams + p.token() }
func (p place) values() string            { return "$KV." + prefix + p.token() + "." }
func (p place) subject(key string) string { return p.values() + escape(key) }
func (p place) changes() string           { return changedPrefix + p.token() + ".>" }

// key returns the key that a subject of the bucket is about.
func (p place) key(subject string) (string, error) {
	token, ok := strings.CutPrefix(subject, p.values())
	if !ok {
		return "", fmt.Errorf("subject %q is not of bucket %q", subject, p.bucket)
	}
	return unescape(token)
}

// shelf names what belongs to a set of objects.
type shelf struct{ objects string }

func (s shelf) stream() string            { return objectStreams + escape(s.objects) }
func (s shelf) all() string               { return objectPrefix + escape(s.objects) + ".>" }
func (s shelf) metas() string             { return objectPrefix + escape(s.objects) + ".meta." }
func (s shelf) meta(name string) string   { return s.metas() + escape(name) }
func (s shelf) datas() string             { return objectPrefix + escape(s.objects) + ".data." }
func (s shelf) data(upload string) string { return s.datas() + upload + "." }

// serviceTokens returns a service as it stands in subjects: its kind and, if it has one,
// its id are one token each.
func serviceTokens(service string) string {
	kind, id, ok := strings.Cut(service, ".")
	if !ok {
		return escape(kind)
	}
	return escape(kind) + "." + escape(id)
}

// identity is who a client is.
type identity struct {
	role Role
	name string
}

// local is whoever has no credentials.
var local = identity{role: "local", name: "local"}

func (i identity) tokens() string { return escape(string(i.role)) + "." + escape(i.name) }
func (i identity) inbox() string  { return inboxPrefix + i.tokens() }

// requests returns the subject of the identity's requests to a service.
func (i identity) requests(service string) string {
	return servicePrefix + i.tokens() + "." + serviceTokens(service)
}

// replies returns what the subjects of the replies begin with.
func (i identity) replies(service string) string {
	return replyPrefix + i.tokens() + "." + serviceTokens(service) + "."
}

// user is how a Handler is told of the identity. Only those of people are plain names;
// a name has no colon.
func (i identity) user() string {
	switch i.role {
	case RoleSupervisor, RoleTopology:
		return string(i.role) + ":" + i.name
	default:
		return i.name
	}
}

// requester returns who has sent a request to that subject.
func requester(subject string) (identity, error) {
	tokens := strings.Split(strings.TrimPrefix(subject, servicePrefix), ".")
	if len(tokens) < 3 {
		return identity{}, fmt.Errorf("subject %q is not that of a request", subject)
	}
	role, err := unescape(tokens[0])
	if err != nil {
		return identity{}, err
	}
	name, err := unescape(tokens[1])
	return identity{Role(role), name}, err
}

// requestsFrom returns the subject of everybody's requests to a service.
func requestsFrom(service string) string {
	return servicePrefix + "*.*." + serviceTokens(service)
}

var objectSets = []string{cluster.ObjectsBinaries, cluster.ObjectsBlobs}
