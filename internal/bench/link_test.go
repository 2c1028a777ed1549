package main

import "testing"

func TestLink(t *testing.T) {
	rows := bench(t, "-workload link -duration 500ms")
	for _, mode := range []string{"tcp", "transport", "link", "link-words", "codec-words"} {
		checkRow(t, rows, "200 channels "+mode, "bytes_per_cpu_s", "ratio_to_tcp")
	}
	checkRow(t, rows, "200 channels, TLS link-tls", "bytes_per_s", "ratio_to_tcp_tls")
	checkRow(t, rows, "199 of 200 channels one-stopped", "bytes_per_s", "ratio_to_all_read")
}
