// Package natscluster keeps the records of a cluster in NATS JetStream: it implements
// the interfaces of engine/cluster with buckets, objects and requests. It takes a server
// of version 2.12 or later.
//
// # Names
//
// What users choose is written into subjects with [escape], so that it is one token.
//
//	stream                    subjects
//	KV_isobar-BUCKET          $KV.isobar-BUCKET.KEY                     values
//	isobar-objects-OBJECTS    isobar.objects.OBJECTS.meta.NAME          what there is
//	                          isobar.objects.OBJECTS.data.ROLE.USER.UPLOAD.N  parts
//
//	isobar.changed.BUCKET.KEY              published by the server for every change
//	isobar.svc.ROLE.USER.SERVICE           requests; SERVICE is nimbus, master.ID or supervisor.ID
//	isobar.reply.ROLE.USER.SERVICE.TOKEN   replies to them
//	isobar.inbox.ROLE.USER.>               replies of JetStream
//
// Who sends a request is in its subject, and permissions allow everybody only the
// subjects with his own role and name. A reply is sent to the requester's own reply
// subject or not at all, so nobody can make a service write for him where he may not.
//
// # No consumers
//
// Nothing here makes a consumer of JetStream. A watch subscribes to the changes that the
// server publishes, takes them as a hint, and reads the stream from where it is; in
// between it looks at the stream itself every few seconds. So there is nothing that a
// storm of reconnects could leave behind, no message that could be lost, and no right to
// create consumers, with which a client could have the server write for it.
//
// # Values
//
// Values have a header, [headerValue]. JetStream answers requests wherever a client asks
// for the answer, also on the subject of a value, whatever that client may publish. Such
// an answer has no header, and is reported as what it is: a damaged record.
package natscluster
