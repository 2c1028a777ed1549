package crash

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/isobar-io/isobar/checkpoint/s3store"
	"github.com/isobar-io/isobar/checkpoint/s3store/s3test"
)

// TestEveryStepCanBeTheLastWithABucket is as TestEveryStepCanBeTheLast, with checkpoints
// on a real S3 server.
func TestEveryStepCanBeTheLastWithABucket(t *testing.T) {
	const bucket = "isobar"
	s3test.SetCredentials(t)
	endpoint := s3test.Start(t, bucket)
	c := narrowCorpus(t)
	names := slices.Sorted(maps.Keys(steps))
	if testing.Short() {
		names = []string{"head", "manifest", "sst.store"}
	}
	for _, step := range names {
		occurrences := steps[step]
		if len(occurrences) == 0 {
			continue
		}
		n := occurrences[len(occurrences)-1]
		for _, edge := range []string{".before", ".after"} {
			t.Run(fmt.Sprintf("%s/%d", step+edge, n), func(t *testing.T) {
				t.Parallel()
				p := newPlace(t, "victim")
				prefix := step + edge
				p.conf = []string{
					"-c", "checkpoint.store=s3://" + bucket + "/" + prefix,
					"-c", "checkpoint.s3.endpoint=" + endpoint,
					"-c", "checkpoint.s3.path.style=true",
				}
				var err error
				p.bucket, err = s3store.NewPlace(s3store.Options{Bucket: bucket, Prefix: prefix, Endpoint: endpoint, PathStyle: true})
				if err != nil {
					t.Fatal(err)
				}
				dieTwice(t, c, p, step+edge, n)
			})
		}
	}
}
