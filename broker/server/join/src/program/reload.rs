//! SIGHUP: reads the configuration and the files that it names again, while the node runs.

use super::{Asked, arguments, rules, secrets};
use crate::manager::{Manager, trust_nodes};
use mqtick_net::listener::Certificate;
use mqtick_net::log;

/// Read the configuration and its files again. If anything is wrong in one of them, nothing changes.
pub(super) fn reload(manager: &mut Manager, certificates: &[Certificate]) {
    manager.reloaded = read_again(manager, certificates);
    match &manager.reloaded {
        Err(error) => log::error(&format!("{error}; what was read before stays")),
        Ok(later) => {
            log::notice("the configuration and the files that it names were read again");
            if !later.is_empty() {
                let names = later.join(", ");
                log::warning(&format!(
                    "{names}: changed in the configuration; restart the node to use it"
                ));
            }
        }
    }
}

/// Returns the changed settings that need a restart.
fn read_again(
    manager: &mut Manager,
    certificates: &[Certificate],
) -> Result<Vec<&'static str>, String> {
    let Asked::Run(new, _) = arguments()? else {
        return Ok(Vec::new()); // not possible: these are the arguments of a node that runs
    };
    let mut settings = manager.settings.clone();
    let mut later = settings.follow(*new);
    if settings.check().is_err() {
        // The new [neighbours] needs the new listeners, which need a restart.
        settings.neighbours = manager.settings.neighbours.clone();
        later.push("neighbours");
    }
    let (mut secrets, rules) = (secrets(&settings)?, rules(&settings)?);
    if secrets.neighbour_tls.is_none() && manager.dials.iter().any(|dial| dial.address.is_tls) {
        secrets.neighbour_tls = Some(trust_nodes(&settings)?); // for one that `add` has added
    }
    Certificate::reload(certificates)?;
    settings.warnings().iter().for_each(|one| log::warning(one));
    manager.change(settings, secrets, rules);
    Ok(later)
}
