package main

import (
	"context"
	"fmt"
	"math"
	"slices"
)

// linkLoad measures what the link between two workers costs, over the loopback and with
// both ends in this process: bytes for each second of a processor, against bare TCP.
type linkLoad struct{}

func (linkLoad) name() string    { return "link" }
func (linkLoad) heeds() []string { return []string{"modes"} }

const (
	linkChannels   = 200
	linkReceivers  = 20 // tasks that read them
	linkFrameBytes = 8 << 10
)

// The modes of the link workload.
const (
	tcpMode        = "tcp"         // one goroutine writes 8 KB at a time, one reads
	linkBytesMode  = "link"        // a frame is one tuple of 8 KB of bytes
	linkWordsMode  = "link-words"  // a frame is 8 KB of words and numbers
	linkCodecMode  = "codec-words" // the same, encoded and decoded, and not sent
	transportMode  = "transport"   // link, less what it takes to encode and decode its frames
	codecBytesMode = "codec"       // 8 KB of bytes, encoded and decoded, and not sent
	tcpTLSMode     = "tcp-tls"
	linkTLSMode    = "link-tls"
	allFlowMode    = "all-read"
	oneStoppedMode = "one-stopped" // of the channels; the others count
)

func (linkLoad) comparisons(o options) ([]comparison, error) {
	names := []string{tcpMode, transportMode, linkBytesMode, linkWordsMode, linkCodecMode, tcpTLSMode, linkTLSMode, allFlowMode, oneStoppedMode}
	chosen := names
	if o.modes != "" {
		var err error
		if chosen, err = list(o.modes, func(s string) (string, error) {
			if !slices.Contains(names, s) {
				return "", fmt.Errorf("unknown mode %q: the modes are %q", s, names)
			}
			return s, nil
		}); err != nil {
			return nil, err
		}
	}
	variants := func(of ...string) (all []variant) {
		for _, m := range of {
			if slices.Contains(chosen, m) {
				all = append(all, variant{m, func(ctx context.Context) (sample, error) {
					if m == transportMode {
						return measureTransport(ctx, o)
					}
					return measureLink(ctx, o, m)
				}})
			}
		}
		return all
	}
	columns := []column{
		{"bytes_per_s", "MB/s", 1e6, 0}, {"bytes_per_cpu_s", "MB/CPU s", 1e6, 0}, {"alloc_per_byte", "B/B", 1, 3},
	}
	label := fmt.Sprintf("%d channels", linkChannels)
	var all []comparison
	for _, c := range []comparison{
		{
			label: label, columns: columns, compared: 1, bases: []string{tcpMode},
			variants: variants(tcpMode, transportMode, linkBytesMode, linkWordsMode, linkCodecMode),
			targets:  map[string]string{ratioKey(tcpMode): "≥ 0.6"},
		},
		{
			label: label + ", TLS", columns: columns, compared: 1, bases: []string{tcpTLSMode},
			variants: variants(tcpTLSMode, linkTLSMode),
			targets:  map[string]string{ratioKey(tcpTLSMode): "≥ 0.6"},
		},
		{
			label: fmt.Sprintf("%d of %d channels", linkChannels-1, linkChannels), columns: columns, bases: []string{allFlowMode},
			variants: variants(allFlowMode, oneStoppedMode),
			targets:  map[string]string{ratioKey(allFlowMode): "about 1"},
		},
	} {
		if len(c.variants) > 0 {
			all = append(all, c)
		}
	}
	return all, nil
}

// measureTransport measures a link and the codec of its frames, and tells the difference.
func measureTransport(ctx context.Context, o options) (sample, error) {
	whole, err := measureLink(ctx, o, linkBytesMode)
	if err != nil {
		return nil, err
	}
	codec, err := measureLink(ctx, o, codecBytesMode)
	if err != nil {
		return nil, err
	}
	return sample{math.NaN(), 1 / (1/whole[1] - 1/codec[1]), math.NaN()}, nil
}

// measureLink measures one mode for one window.
func measureLink(ctx context.Context, o options, mode string) (sample, error) {
	counted := make([]paddedCounter, linkReceivers)
	type seen struct {
		usage
		bytes int64
	}
	from, to, err := through(ctx, o,
		func(ctx context.Context) error {
			switch mode {
			case tcpMode, tcpTLSMode:
				return runTCP(ctx, mode == tcpTLSMode, counted)
			case linkCodecMode, codecBytesMode:
				return runCodec(ctx, mode, counted)
			default:
				return runLink(ctx, mode, counted)
			}
		},
		func() bool { return sum(counted) > 0 },
		func() seen { return seen{used(), sum(counted)} })
	if err != nil {
		return nil, err
	}
	bytes := float64(to.bytes - from.bytes)
	return sample{
		bytes / to.at.Sub(from.at).Seconds(), bytes / (to.cpu - from.cpu).Seconds(),
		float64(to.usage.bytes-from.usage.bytes) / bytes,
	}, nil
}
