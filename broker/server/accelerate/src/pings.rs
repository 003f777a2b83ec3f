//! The PINGREQ of one client, its own and ours: what their answers say of the messages before them.

/// So long a late answer may still come; until then it could be taken for that of a later PINGREQ.
const OWED_NS: u64 = 60_000_000_000;

/// PINGREQ have no number: their answers are only counted.
#[derive(Clone, Debug, Default)]
pub struct Pings {
    open: u32,
    since_ns: u64,
    covers: bool,
    /// When ours was sent last.
    pub ours_ns: Option<u64>,
    /// Whether the answer to it is still kept back.
    pub kept: bool,
    /// Tries to open a rule that failed, one after another.
    pub tries: u32,
}

impl Pings {
    /// A PINGREQ is on its way.
    pub fn sent(&mut self, now_ns: u64) {
        if self.open == 0 {
            self.since_ns = now_ns;
        }
        self.open = self.open.saturating_add(1);
        self.covers = true;
    }

    /// Something happened that only a later PINGREQ confirms.
    pub fn changed(&mut self) {
        self.covers = false;
    }

    /// No answer can come any more.
    pub fn forget(&mut self) {
        (self.open, self.covers) = (0, false);
    }

    /// So many answers have come, and say nothing of what was before.
    pub fn answered_late(&mut self, count: u32) {
        self.open = self.open.saturating_sub(count);
    }

    /// An answer came; whether it is the last that was awaited, and if so, whether nothing changed
    /// since the last PINGREQ.
    pub fn answered(&mut self) -> Option<bool> {
        self.open = self.open.checked_sub(1)?;
        (self.open == 0).then_some(self.covers)
    }

    /// Whether answers may come, soon or late.
    #[must_use]
    pub fn are_open(&self) -> bool {
        self.open > 0
    }

    /// Whether no answer can come.
    pub fn is_idle(&mut self, now_ns: u64) -> bool {
        if self.open > 0 && now_ns.saturating_sub(self.since_ns) > OWED_NS {
            self.open = 0;
        }
        self.open == 0
    }
}
