.PHONY: check test lint fmt bench sim

# check is what CI runs.
check:
	.ci/run

test:
	go test ./...

# lint uses the binary that .ci/run installs, or one on the path.
lint:
	@PATH="$${ISOBAR_TOOLS:-$$HOME/.cache/isobar-tools}:$$PATH" sh -c \
		'for l in golangci-lint-v2.15.0 golangci-lint; do \
			command -v $$l >/dev/null && exec $$l run ./...; done; \
		echo "golangci-lint is missing: run make check once" >&2; exit 1'

fmt:
	gofmt -w -s .

bench:
	go run ./internal/bench -workload fastwordcount
	go run ./internal/bench -workload wordcount

# sim runs as many seeded schedules as asked for: make sim SEEDS=100000.
SEEDS ?= 10000
sim:
	go test ./internal/sim -count=1 -timeout 0 -sim.seeds=$(SEEDS)
