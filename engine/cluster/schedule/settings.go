package schedule

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// Keys of topologies that schedulers read. MemoryMB and CPU of a component come before
// the keys of components.
const (
	// KeyHosts lists where a topology may run: host names, or labels as in pool=batch. One
	// of them must fit.
	KeyHosts = "topology.isolation.hosts"
	// KeyTaskMemory and KeyTaskMemoryOffHeap are the megabytes of a task; their sum counts.
	KeyTaskMemory        = "topology.component.resources.onheap.memory.mb"
	KeyTaskMemoryOffHeap = "topology.component.resources.offheap.memory.mb"
	// KeyTaskCPU is the CPU of a task; 100 is one core.
	KeyTaskCPU = "topology.component.cpu.pcore.percent"
	// KeyWorkerMemory is how many megabytes the tasks of one worker may have.
	KeyWorkerMemory = "topology.worker.max.heap.size.mb"
)

// settings are the keys above.
type settings struct {
	hosts                         []string
	taskMemory, taskCPU, heapSize int
	err                           error
}

func settingsOf(config map[string]any) settings {
	var s settings
	number := func(key string, otherwise int) int {
		n, err := integer(config[key], otherwise)
		if err != nil && s.err == nil {
			s.err = fmt.Errorf("%s: %w", key, err)
		}
		return n
	}
	s.taskMemory = number(KeyTaskMemory, 128) + number(KeyTaskMemoryOffHeap, 0)
	s.taskCPU = number(KeyTaskCPU, 10)
	s.heapSize = number(KeyWorkerMemory, 768)
	hosts, err := list(config[KeyHosts])
	if err != nil {
		s.err = fmt.Errorf("%s: %w", KeyHosts, err)
	}
	s.hosts = hosts
	return s
}

// integer reads a number that came out of JSON or YAML.
func integer(value any, otherwise int) (int, error) {
	switch n := value.(type) {
	case nil:
		return otherwise, nil
	case int:
		if n >= 0 {
			return n, nil
		}
	case float64:
		if n >= 0 && n <= math.MaxInt32 && n == math.Trunc(n) {
			return int(n), nil
		}
	}
	return 0, fmt.Errorf("it is %v; it must be a whole number of 0 or more", value)
}

// list reads a list of words, or words with commas between them.
func list(value any) ([]string, error) {
	var words []string
	switch l := value.(type) {
	case nil:
	case string:
		words = strings.Split(l, ",")
	case []string:
		words = slices.Clone(l)
	case []any:
		for _, one := range l {
			word, ok := one.(string)
			if !ok {
				return nil, fmt.Errorf("it lists %v; it must list words", one)
			}
			words = append(words, word)
		}
	default:
		return nil, fmt.Errorf("it is %v; it must be a list of words", value)
	}
	for i := range words {
		words[i] = strings.TrimSpace(words[i])
	}
	return slices.DeleteFunc(words, func(word string) bool { return word == "" }), nil
}

// allows reports whether a topology wants to run on a supervisor.
func (s *settings) allows(on *Supervisor) bool {
	return len(s.hosts) == 0 || slices.ContainsFunc(s.hosts, func(host string) bool {
		key, value, isLabel := strings.Cut(host, "=")
		if isLabel {
			has, ok := on.Labels[key]
			return ok && has == value
		}
		return host == on.Host
	})
}

// where is the end of a condition: which places come into question.
func (s *settings) where() string {
	if len(s.hosts) == 0 {
		return ""
	}
	return " on " + strings.Join(slices.Sorted(slices.Values(s.hosts)), ", ")
}
