package checkpoint

import (
	"context"
	"errors"
	"fmt"
)

// editAttempts is how often a change is tried again whose outcome is not known.
const editAttempts = 5

// EditHead makes an operator's change of the head of a store. nonce must never have been
// used before; it tells this change from any other. A running topology master goes on: it
// sees that the head is its own, edited, unless the edit has raised the generation. before
// and after are the heads; of an edit that changes nothing they may be the same. An error
// of the store that does not go away is returned; the change may have been made then.
func EditHead(ctx context.Context, s Store, nonce string, edit Edit) (dropped []Ref, before, after *Head, err error) {
	for unknown := 0; ; {
		data, version, err := s.ReadHead(ctx)
		if err != nil {
			return nil, nil, nil, fmt.Errorf("edit the head: %w", err)
		}
		before, err := DecodeHead("head", data)
		if err != nil {
			return nil, nil, nil, fmt.Errorf("edit the head: %w", err)
		}
		if before.Editor == nonce || before.Writer == nonce { // an attempt without a reply has done it
			return dropped, before, before, nil
		}
		after := before.Clone()
		if dropped, err = edit(after); err != nil {
			return nil, before, before, err
		}
		after.trim()
		after.Editor = nonce
		if after.Generation != before.Generation { // whoever runs is to see another writer
			after.Writer = nonce
		}
		if data, err = EncodeHead(after); err != nil {
			return nil, before, before, err
		}
		switch _, err = s.SwapHead(ctx, version, data); {
		case err == nil:
			return dropped, before, after, nil
		case errors.Is(err, ErrHeadMoved): // again, on the new one
		case ctx.Err() != nil || unknown == editAttempts:
			return nil, before, before, fmt.Errorf("edit the head: %w; it is not known whether it was changed: look at it", err)
		default:
			unknown++
		}
	}
}
