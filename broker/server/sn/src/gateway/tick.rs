//! The regular work of the gateway: to repeat messages, and to notice lost clients.

use super::engine::Engine;
use super::{Gateway, SECOND_NS, send};
use crate::client::{Keep, State, lock};
use crate::codec::{Message, encode};
use std::sync::Arc;

impl<M: Keep, S> Gateway<M, S> {
    /// To be called once a second: send again what was not answered, and end lost clients and
    /// expired sessions.
    pub fn tick(&mut self, now_ns: u64, engine: &mut impl Engine<Message = M, Subscriber = S>) {
        self.connecting.retain(|_, one| !one.is_over(now_ns));
        let (mut lost, mut over) = (Vec::new(), Vec::new());
        for (client, session) in &self.sessions {
            let mut seat = lock(&session.seat);
            self.dropped += std::mem::take(&mut seat.dropped);
            if session.gone {
                let kept_ns = u64::from(self.settings.expiry_s) * SECOND_NS;
                if now_ns.saturating_sub(session.heard_ns) > kept_ns {
                    over.push(Arc::clone(client));
                }
            } else if session.is_late(now_ns) {
                lost.push(Arc::clone(client));
            } else if !seat.repeat(now_ns, &mut self.out) {
                match session.asleep {
                    // it sleeps again before all its messages were sent
                    true => seat.leave(State::Asleep),
                    false => lost.push(Arc::clone(client)),
                }
            }
            send(engine, &session.address, &mut self.out);
        }
        for client in lost {
            self.lose(now_ns, &client, engine);
        }
        for client in over {
            self.forget(&client, engine);
        }
    }

    /// An ADVERTISE. `duration_s`: when the next one comes.
    #[must_use]
    pub fn advertisement(&self, duration_s: u16) -> Vec<u8> {
        let mut out = Vec::new();
        let gateway = self.settings.gateway;
        encode(
            &Message::Advertise {
                gateway,
                duration_s,
            },
            &mut out,
        );
        out
    }
}
