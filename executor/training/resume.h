// Taking and restoring checkpoints of a step's leaves, feeds and optimizer.
#pragma once
#include "espalier/executor/training/checkpoint.h"
#include "espalier/executor/training/setup.h"

namespace espalier {

/// The feeds of a setup, then its validation feed.
std::vector<FeedState> feed_states(const Setup& setup);

/// The state of a run without the leaves.
Checkpoint take_run(const Setup& setup, RunState run);

/// All that a run needs to go on, of the first process. All states have been gathered.
Checkpoint take_checkpoint(const Setup& setup, RunState run);

/// Throws FileError, which says what differs, unless a checkpoint was taken of this program.
void check_fit(const CheckpointFile& file, const Setup& setup);

/// Sets the leaves, the feeds' epochs, the optimizer's settings and this thread's random state. The
/// checkpoint fits.
void restore(const Checkpoint& checkpoint, Setup& setup);

/// Sets the feeds' epochs and this thread's random state to those of a run that was saved with its tree, and
/// returns the state that it goes on with: if a feed shows other batches than it did, from the beginning of
/// the epoch. Throws FileError for a position that there is not.
RunState continue_run(const Checkpoint& saved, Setup& setup);

}  // namespace espalier
