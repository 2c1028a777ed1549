// Package s3test has what tests of stores on S3 need: a small server in memory, a real
// one as a process, and a network between here and them that fails in many ways.
package s3test

import (
	"cmp"
	"crypto/md5"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/xml"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Server is a small S3 server in memory: path style, single PUTs. It heeds conditions
// and checksums as S3 does, each request in one step, and looks at the access key but
// not at the signature.
type Server struct {
	AccessKey string // others are refused; empty: all are served
	// Ignore makes it ignore a header, "If-Match", "If-None-Match" or
	// "X-Amz-Checksum-Crc32c", as some servers do.
	Ignore string

	mu      sync.Mutex
	buckets map[string]map[string]object
}

type object struct {
	data    []byte
	etag    string
	written time.Time
}

// NewServer returns a Server that has an empty bucket of that name.
func NewServer(bucket string) *Server {
	return &Server{buckets: map[string]map[string]object{bucket: {}}}
}

// failure is an error reply.
type failure struct {
	status int
	Code   string
	Bucket string
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.AccessKey != "" && !strings.Contains(r.Header.Get("Authorization"), "Credential="+s.AccessKey+"/") {
		fail(w, r, &failure{http.StatusForbidden, "InvalidAccessKeyId", ""})
		return
	}
	bucket, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	var body []byte
	if r.Method == http.MethodPut {
		var err error
		// Before the lock: a body may be long in coming. What is cut off is void.
		if body, err = io.ReadAll(r.Body); err != nil || int64(len(body)) != r.ContentLength {
			fail(w, r, &failure{http.StatusBadRequest, "IncompleteBody", ""})
			return
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	objects, ok := s.buckets[bucket]
	if !ok {
		fail(w, r, &failure{http.StatusNotFound, "NoSuchBucket", bucket})
		return
	}
	var f *failure
	switch {
	case key == "" && r.Method == http.MethodGet:
		f = list(w, r, objects)
	case key == "":
		f = &failure{http.StatusNotImplemented, "NotImplemented", ""}
	case r.Method == http.MethodPut:
		f = s.put(w, r, objects, key, body)
	case r.Method == http.MethodGet:
		f = s.get(w, r, objects, key)
	case r.Method == http.MethodDelete:
		delete(objects, key)
		w.WriteHeader(http.StatusNoContent)
	default:
		f = &failure{http.StatusMethodNotAllowed, "MethodNotAllowed", ""}
	}
	if f != nil {
		fail(w, r, f)
	}
}

func fail(w http.ResponseWriter, r *http.Request, f *failure) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(f.status)
	fmt.Fprintf(w, "<Error><Code>%s</Code><Message>%s of %s: %s</Message><BucketName>%s</BucketName></Error>", f.Code, r.Method, r.URL.Path, f.Code, f.Bucket)
}

// holds reports whether the conditions of a request do.
func (s *Server) holds(r *http.Request, o object, exists bool) bool {
	match, none := r.Header.Get("If-Match"), r.Header.Get("If-None-Match")
	if match != "" && s.Ignore != "If-Match" && (!exists || strings.Trim(match, `"`) != o.etag) {
		return false
	}
	return none == "" || s.Ignore == "If-None-Match" || !exists
}

func checksum(data []byte) string {
	sum := crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli))
	return base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, sum))
}

func (s *Server) put(w http.ResponseWriter, r *http.Request, objects map[string]object, key string, body []byte) *failure {
	if r.Header.Get("X-Amz-Content-Sha256") != "UNSIGNED-PAYLOAD" {
		return &failure{http.StatusNotImplemented, "NotImplemented", ""}
	}
	if sum := r.Header.Get("X-Amz-Checksum-Crc32c"); sum != "" && sum != checksum(body) && s.Ignore != "X-Amz-Checksum-Crc32c" {
		return &failure{http.StatusBadRequest, "BadDigest", ""}
	}
	old, exists := objects[key]
	switch {
	case !exists && r.Header.Get("If-Match") != "" && s.Ignore != "If-Match":
		return &failure{http.StatusNotFound, "NoSuchKey", ""}
	case !s.holds(r, old, exists):
		return &failure{http.StatusPreconditionFailed, "PreconditionFailed", ""}
	}
	sum := md5.Sum(body)
	o := object{body, hex.EncodeToString(sum[:]), time.Now()}
	objects[key] = o
	w.Header().Set("ETag", `"`+o.etag+`"`)
	w.Header().Set("X-Amz-Checksum-Crc32c", checksum(body))
	return nil
}

func (s *Server) get(w http.ResponseWriter, r *http.Request, objects map[string]object, key string) *failure {
	o, exists := objects[key]
	switch {
	case !exists:
		return &failure{http.StatusNotFound, "NoSuchKey", ""}
	case !s.holds(r, o, true):
		return &failure{http.StatusPreconditionFailed, "PreconditionFailed", ""}
	}
	w.Header().Set("ETag", `"`+o.etag+`"`)
	w.Header().Set("Last-Modified", o.written.UTC().Format(http.TimeFormat))
	data := o.data
	if part := r.Header.Get("Range"); part != "" {
		var from, to int
		if _, err := fmt.Sscanf(part, "bytes=%d-%d", &from, &to); err != nil || from >= len(data) {
			return &failure{http.StatusRequestedRangeNotSatisfiable, "InvalidRange", ""}
		}
		to = min(to, len(data)-1)
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, to, len(data)))
		data = data[from : to+1]
	} else if r.Header.Get("X-Amz-Checksum-Mode") != "" {
		w.Header().Set("X-Amz-Checksum-Crc32c", checksum(data))
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(data)))
	if len(data) < len(o.data) {
		w.WriteHeader(http.StatusPartialContent)
	}
	_, _ = w.Write(data) // whoever does not want it has gone
	return nil
}

type listing struct {
	XMLName               xml.Name `xml:"ListBucketResult"`
	IsTruncated           bool
	NextContinuationToken string `xml:",omitempty"`
	Contents              []listed
	CommonPrefixes        []folder
}

type listed struct {
	Key          string
	Size         int
	ETag         string
	LastModified string
}

type folder struct{ Prefix string }

func list(w http.ResponseWriter, r *http.Request, objects map[string]object) *failure {
	q := r.URL.Query()
	prefix, delimiter := q.Get("prefix"), q.Get("delimiter")
	after := cmp.Or(q.Get("continuation-token"), q.Get("start-after"))
	keys, err := strconv.Atoi(cmp.Or(q.Get("max-keys"), "1000"))
	if err != nil || q.Get("list-type") != "2" {
		return &failure{http.StatusNotImplemented, "NotImplemented", ""}
	}
	var l listing
	folders := map[string]bool{}
	for _, key := range slices.Sorted(maps.Keys(objects)) {
		if !strings.HasPrefix(key, prefix) || key <= after {
			continue
		}
		if len(l.Contents) == keys {
			l.IsTruncated, l.NextContinuationToken = true, l.Contents[keys-1].Key
			break
		}
		if delimiter != "" {
			if at := strings.Index(key[len(prefix):], delimiter); at >= 0 {
				name := key[:len(prefix)+at+1]
				if !folders[name] {
					folders[name] = true
					l.CommonPrefixes = append(l.CommonPrefixes, folder{name})
				}
				continue
			}
		}
		o := objects[key]
		l.Contents = append(l.Contents, listed{key, len(o.data), `"` + o.etag + `"`, o.written.UTC().Format(time.RFC3339Nano)})
	}
	w.Header().Set("Content-Type", "application/xml")
	_ = xml.NewEncoder(w).Encode(l) // whoever does not want it has gone
	return nil
}
