//! The commands, and which options each takes.

/// What to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// How much a broker carries.
    Limit,
    /// A scenario.
    Run,
    /// Print [`crate::settings::help::HELP`].
    Help,
    /// Print the version.
    Version,
    /// 1:1 topics.
    Pairs,
    /// One publisher, many subscribers.
    Fanout,
    /// Idle connections.
    Idle,
    /// Serve as a peer.
    Floor,
    /// Do one machine's part of a scenario.
    Agent,
}

const COMMON: [&str; 11] = [
    "broker",
    "broker-pid",
    "mqtt",
    "username",
    "password-file",
    "ca-file",
    "certificate-file",
    "certificate-key-file",
    "prefix",
    "patience",
    "json",
];
const BOTH: [&str; 5] = ["qos", "size", "repeats", "floor", "threads"];

impl Command {
    /// Whether it takes an option.
    pub fn takes(self, option: &str) -> bool {
        let own: &[&str] = match self {
            Self::Pairs => &["pairs", "window", "burst", "seconds", "persistent"],
            Self::Fanout => &[
                "subscribers",
                "messages",
                "gap",
                "rate",
                "burst",
                "stamps",
                "udp",
                "sn",
                "until-eof",
            ],
            Self::Limit => &["search", "trial", "resolution", "repeats", "scenario"],
            Self::Run => &["csv", "repeats"],
            Self::Idle => &["connections"],
            Self::Floor => &["address", "port", "threads", "until-eof", "udp"],
            Self::Agent | Self::Help | Self::Version => &[],
        };
        own.contains(&option)
            || (!matches!(self, Self::Agent | Self::Floor | Self::Help | Self::Version)
                && COMMON.contains(&option))
            || (matches!(self, Self::Pairs | Self::Fanout) && BOTH.contains(&option))
    }

    /// Returns the command with a name.
    pub fn named(name: &str) -> Option<Self> {
        let all = [
            Self::Limit,
            Self::Run,
            Self::Pairs,
            Self::Fanout,
            Self::Idle,
            Self::Floor,
            Self::Agent,
        ];
        all.into_iter().find(|one| one.name() == name)
    }

    /// Returns its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Limit => "limit",
            Self::Run => "run",
            Self::Pairs => "pairs",
            Self::Fanout => "fanout",
            Self::Idle => "idle",
            Self::Floor => "floor",
            Self::Agent => "agent",
            Self::Help => "--help",
            Self::Version => "--version",
        }
    }
}
