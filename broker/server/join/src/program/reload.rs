//! SIGHUP: what of the configuration, and of the files that it names, can change while a node runs.

use super::{Asked, arguments, rules, secrets};
use crate::manager::Manager;
use crate::neighbours::trust_nodes;
use mqtick_broker::listener::Certificate;
use mqtick_broker::log;

/// Read the configuration and its files again. Where anything is wrong in any of them, nothing changes.
pub(super) fn reload(manager: &mut Manager, certificates: &[Certificate]) {
    manager.reloaded = read_again(manager, certificates);
    match &manager.reloaded {
        Err(error) => log::error(&format!("{error}; what was read before stays")),
        Ok(later) => {
            log::notice("the configuration and the files that it names were read again");
            if !later.is_empty() {
                let names = later.join(", ");
                log::warning(&format!(
                    "{names}: changed in the configuration; that holds from the next start on"
                ));
            }
        }
    }
}

/// What holds from the next start on.
fn read_again(
    manager: &mut Manager,
    certificates: &[Certificate],
) -> Result<Vec<&'static str>, String> {
    let Asked::Run(new, _) = arguments()? else {
        return Ok(Vec::new()); // it runs, so this is what was asked for
    };
    let mut settings = manager.settings.clone();
    let mut later = settings.follow(*new);
    if settings.check().is_err() {
        // It goes with the listeners to come only.
        settings.neighbours = manager.settings.neighbours.clone();
        later.push("neighbours");
    }
    let (mut secrets, rules) = (secrets(&settings)?, rules(&settings)?);
    if secrets.neighbour_tls.is_none() && manager.dials.iter().any(|dial| dial.address.is_tls) {
        secrets.neighbour_tls = Some(trust_nodes(&settings)?); // one that was added
    }
    Certificate::reload(certificates)?;
    settings.warnings().iter().for_each(|one| log::warning(one));
    manager.change(settings, secrets, rules);
    Ok(later)
}
