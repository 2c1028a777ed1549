package s3store

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/minio/minio-go/v7/pkg/credentials"
)

// sources are the places where credentials may be, in the order in which they count.
// The library's own chain would go on without any, as nobody.
type sources struct {
	all     []credentials.Provider
	current credentials.Provider
}

func newCredentials() *credentials.Credentials {
	s := &sources{all: []credentials.Provider{&credentials.EnvAWS{}, &credentials.FileAWSCredentials{}}}
	role := os.Getenv("AWS_WEB_IDENTITY_TOKEN_FILE") + os.Getenv("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI") +
		os.Getenv("AWS_CONTAINER_CREDENTIALS_FULL_URI")
	if role != "" || os.Getenv("AWS_EC2_METADATA_DISABLED") != "true" {
		s.all = append(s.all, &credentials.IAM{Client: &http.Client{Timeout: 5 * time.Second}})
	}
	return credentials.New(s)
}

// RetrieveWithCredContext implements credentials.Provider.
func (s *sources) RetrieveWithCredContext(c *credentials.CredContext) (credentials.Value, error) {
	var errs []error
	for _, p := range s.all {
		v, err := p.RetrieveWithCredContext(c)
		if err == nil && v.AccessKeyID != "" && v.SecretAccessKey != "" {
			s.current = p
			return v, nil
		}
		errs = append(errs, err)
	}
	return credentials.Value{}, fmt.Errorf("found no credentials: %s: %w", credentialsHint, errors.Join(errs...))
}

const credentialsHint = "they come from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, from the shared credentials file, or from the machine's role"

// Retrieve implements credentials.Provider.
func (s *sources) Retrieve() (credentials.Value, error) { return s.RetrieveWithCredContext(nil) }

// IsExpired implements credentials.Provider.
func (s *sources) IsExpired() bool { return s.current == nil || s.current.IsExpired() }
