package natscluster

import (
	"fmt"
	"strings"

	"github.com/isobar-io/isobar/engine/cluster"
)

// Role is what a client of the store is, and so what it may do.
type Role string

// The roles. People are users or admins: the store lets them do the same, and nimbus
// tells them apart by its configuration.
const (
	RoleNimbus     Role = "nimbus"
	RoleSupervisor Role = "supervisor" // its name is the supervisor's id
	RoleTopology   Role = "topology"   // its name is the topology's id
	RoleUser       Role = "user"
	RoleAdmin      Role = "admin"
)

// Permissions are the subjects that a client may use.
type Permissions struct {
	Publish     []string
	PublishDeny []string // of those
	Subscribe   []string
}

// PermissionsOf returns what a client may do. Nimbus may do everything. For the others it
// is what they need and nothing else; in particular nobody but nimbus may make, change,
// purge or delete a stream, or make a consumer.
func PermissionsOf(role Role, name string) (Permissions, error) {
	i := identity{role, name}
	if err := i.check(); err != nil {
		return Permissions{}, err
	}
	var p Permissions
	p.Subscribe = append(p.Subscribe, i.inbox()+".>")
	switch role {
	case RoleNimbus:
		p = Permissions{Publish: []string{">"}, Subscribe: []string{">"}}
	case RoleUser, RoleAdmin:
		p.request(i)
		for _, o := range objectSets {
			p.open(shelf{o}.stream())
			p.Publish = append(p.Publish, shelf{o}.metas()+"*", shelf{o}.data(i.tokens())+">")
		}
	case RoleSupervisor:
		p.supervise(i)
	case RoleTopology:
		own := place{cluster.TopologyBucket(name)}
		p.read(own)
		p.Publish = append(p.Publish, own.subject(cluster.KeyMaster), own.subject(cluster.KeyStatus))
		p.serve(cluster.MasterService(name))
	}
	return p, nil
}

// supervise allows what a supervisor does. It starts the processes of whatever topology
// and is given the secrets of all, so it may read their buckets, and what blobs are;
// patterns of subjects cannot tell these buckets from others, which are therefore named.
func (p *Permissions) supervise(i identity) {
	p.request(i)
	p.serve(cluster.SupervisorService(i.name))
	p.Publish = append(p.Publish, info("*"), messages("*"), place{cluster.BucketSupervisors}.subject(i.name))
	p.Subscribe = append(p.Subscribe, changedPrefix+">")
	for _, b := range []string{cluster.BucketTopologies, cluster.BucketNimbus} {
		p.PublishDeny = append(p.PublishDeny, info(place{b}.stream()), messages(place{b}.stream()))
	}
}

func messages(stream string) string { return "$JS.API.STREAM.MSG.GET." + stream }
func info(stream string) string     { return "$JS.API.STREAM.INFO." + stream }

// open allows to see that a stream is there.
func (p *Permissions) open(stream string) { p.Publish = append(p.Publish, info(stream)) }

// read allows to get, list and watch the values of a bucket.
func (p *Permissions) read(b place) {
	p.open(b.stream())
	p.Publish = append(p.Publish, messages(b.stream()))
	p.Subscribe = append(p.Subscribe, b.changes())
}

// request allows to ask nimbus.
func (p *Permissions) request(i identity) {
	p.Publish = append(p.Publish, i.requests(cluster.ServiceNimbus))
	p.Subscribe = append(p.Subscribe, i.replies(cluster.ServiceNimbus)+"*")
}

// serve allows to answer requests to a service.
func (p *Permissions) serve(service string) {
	p.Subscribe = append(p.Subscribe, requestsFrom(service))
	p.Publish = append(p.Publish, replyPrefix+"*.*."+serviceTokens(service)+".*")
}

// check refuses who cannot be.
func (i identity) check() error {
	switch i.role {
	case RoleNimbus, RoleSupervisor, RoleTopology, RoleUser, RoleAdmin:
	default:
		return fmt.Errorf("role %q is unknown: it must be nimbus, supervisor, topology, user or admin", i.role)
	}
	switch {
	case i.name == "":
		return fmt.Errorf("a %s has no name", i.role)
	case i.role != RoleSupervisor && i.role != RoleTopology && strings.Contains(i.name, ":"):
		return fmt.Errorf("name %q of a %s has a colon, by which handlers tell processes from people", i.name, i.role)
	}
	return nil
}
