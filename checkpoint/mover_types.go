package checkpoint

// MoverEvent is what happened to the head: past tense.
//
//sumtype:decl
type MoverEvent interface{ moverEvent() }

type (
	// RaiseRequested: a region wants a new generation.
	RaiseRequested struct {
		Region string
		// To, if set, is to be the current checkpoint from then on.
		To *Target
		// The region is settled up to batch Settled in Generation, its last; 0 = not known.
		Generation Generation
		Settled    BatchID
		Start      string // names the start that wants it, or ""; see RegionHead.Started
	}
	// EditRequested: an operator wants the head to be changed. ID comes back in Edited.
	EditRequested struct {
		ID   int
		Edit Edit
	}
	// AdvanceRequested: a region has a new complete checkpoint.
	AdvanceRequested struct {
		Region     string
		Generation Generation
		Ref        Ref
		Settled    BatchID // as of RaiseRequested
	}
	// SettleRequested: a region has ended in order, and is settled up to a batch. It is
	// not answered.
	SettleRequested struct {
		Region     string
		Generation Generation
		Settled    BatchID
	}
	// SwapSucceeded: the compare-and-swap was carried out.
	SwapSucceeded struct{ Version Version }
	// SwapRefused: ErrHeadMoved; another writer was there first, or our own write
	// whose reply was lost.
	SwapRefused struct{}
	// SwapUnknown: any other error.
	SwapUnknown struct{ Err error }
	// HeadReread: the head as it is now, after a Reread.
	HeadReread struct {
		Head    *Head // nil: there is none
		Version Version
	}
	// RereadFailed: the store did not answer.
	RereadFailed struct{ Err error }
)

func (RaiseRequested) moverEvent()   {}
func (EditRequested) moverEvent()    {}
func (AdvanceRequested) moverEvent() {}
func (SettleRequested) moverEvent()  {}
func (SwapSucceeded) moverEvent()    {}
func (SwapRefused) moverEvent()      {}
func (SwapUnknown) moverEvent()      {}
func (HeadReread) moverEvent()       {}
func (RereadFailed) moverEvent()     {}

// MoverAction is what must be done about the head: imperative.
//
//sumtype:decl
type MoverAction interface{ moverAction() }

type (
	// Swap: encode Head, always to the same bytes, and compare-and-swap it. One at a
	// time. A pause belongs before it when it follows a SwapFailed.
	Swap struct {
		Old  Version
		Head *Head
	}
	// Reread: read the head and answer HeadReread or RereadFailed. A pause belongs
	// before it when it follows a SwapFailed.
	Reread struct{}
	// Raised: answer GenerationRaised to the region's Coordinator.
	Raised struct {
		Region     string
		Generation Generation
		From       *Ref
		Oldest     BatchID
		// Err says why From is not what was asked for; it is the current one then.
		Err error
	}
	// Edited: the operator's change is made, or Err says why not. Delete what only the
	// Dropped checkpoints name.
	Edited struct {
		ID      int
		Dropped []Ref
		Err     error
	}
	// Advanced: answer HeadMoved to the region's Coordinator, then delete what only
	// the Dropped checkpoints name.
	Advanced struct {
		Region     string
		Generation Generation
		Batch      BatchID
		Oldest     BatchID
		Dropped    []Ref
	}
	// SwapFailed: answer HeadFailed to a region whose request is in the swap: it is
	// not carried out yet, as far as is known, and is being tried again. Generation 0
	// stands for a raise.
	SwapFailed struct {
		Region     string
		Generation Generation
		Err        error
	}
	// Lost: answer Fenced to every region: another writer has moved the head.
	Lost struct{ Err error }
)

func (Swap) moverAction()       {}
func (Reread) moverAction()     {}
func (Raised) moverAction()     {}
func (Edited) moverAction()     {}
func (Advanced) moverAction()   {}
func (SwapFailed) moverAction() {}
func (Lost) moverAction()       {}
