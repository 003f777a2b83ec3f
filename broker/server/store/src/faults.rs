//! Simulates failures of the disk.

use std::io::{Error, ErrorKind, Result};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The failures.
#[derive(Debug)]
pub(crate) struct Faults {
    /// How many more writes there is room for.
    pub(crate) writes: AtomicU64,
    /// Whether syncing fails.
    pub(crate) sync: AtomicBool,
}

impl Default for Faults {
    fn default() -> Self {
        Self {
            writes: AtomicU64::new(u64::MAX),
            sync: AtomicBool::new(false),
        }
    }
}

impl Faults {
    pub(crate) fn check(&self, sync: bool) -> Result<()> {
        if sync {
            return match self.sync.load(Ordering::SeqCst) {
                true => Err(Error::other("the disk died")),
                false => Ok(()),
            };
        }
        let left = self.writes.load(Ordering::SeqCst);
        if left == 0 {
            return Err(ErrorKind::StorageFull.into());
        }
        self.writes.store(
            left.saturating_sub(u64::from(left != u64::MAX)),
            Ordering::SeqCst,
        );
        Ok(())
    }
}

mod tests {
    #![allow(clippy::unwrap_used)]

    use std::path::Path;
    use std::sync::atomic::Ordering;
    use std::sync::{Arc, Mutex};

    use crate::file::Place;
    use crate::model::{Folder, State, Story, kept, open};
    use crate::writer::Writer;
    use crate::{Change, Message, Refused, Store};

    fn place(directory: &Path) -> (Place, Arc<super::Faults>) {
        let place = Place::new(directory);
        let faults = place.faults.clone();
        (place, faults)
    }

    /// A store with contents, and its story.
    fn begun(place: Place) -> (Store, Story) {
        let mut story = Story::new(7);
        let (store, _) = Store::open_place(place, Box::new(|_| {})).unwrap();
        for _ in 0..50 {
            kept(&store, story.next()).unwrap();
        }
        (store, story)
    }

    #[test]
    fn a_commit_takes_place_wholly_or_not_whichever_of_its_writes_fails() {
        let folder = Folder::new();
        let (place, faults) = place(&folder.0);
        let (store, mut story) = begun(place);
        let mut refused = 0;
        for writes in 0..60 {
            faults.writes.store(writes, Ordering::SeqCst);
            let before = story.clone();
            let result = kept(&store, story.next());
            faults.writes.store(u64::MAX, Ordering::SeqCst);
            if result == Err(Refused::Full) {
                refused += 1;
                // It was refused, so it is submitted again. Its facts, such as the end of a
                // session, may have been kept before, but must not prevent that.
                story = before;
                let result = kept(&store, story.next());
                let is_kept = matches!(result, Ok(()) | Err(Refused::Wrong(_)));
                assert!(is_kept, "after {writes} writes: {result:?}");
            }
        }
        assert!(refused > 5, "{refused}");
        drop(store);
        assert!(State::from(&open(&folder.0).1) == story.state);
    }

    #[test]
    fn nothing_is_acknowledged_while_the_disk_does_not_sync() {
        let folder = Folder::new();
        let (place, faults) = place(&folder.0);
        let (store, mut story) = begun(place);
        faults.sync.store(true, Ordering::SeqCst);
        let before = story.state.clone();
        let failed = Refused::Failed("the disk died".into());
        assert_eq!(kept(&store, story.next()), Err(failed));
        assert!(matches!(kept(&store, vec![]), Err(Refused::Failed(_))));
        faults.sync.store(false, Ordering::SeqCst);
        assert_eq!(kept(&store, vec![]), Ok(()));
        drop(store);
        let state = State::from(&open(&folder.0).1);
        assert!(state == before || state == story.state);
    }

    #[test]
    fn a_file_that_was_taken_away_is_not_replaced_by_an_empty_one() {
        let folder = Folder::new();
        let (place, faults) = place(&folder.0);
        let (store, mut story) = begun(place);
        std::fs::rename(folder.file(), folder.0.join("away")).unwrap();
        faults.writes.store(0, Ordering::SeqCst);
        assert_eq!(kept(&store, story.clone().next()), Err(Refused::Full));
        faults.writes.store(u64::MAX, Ordering::SeqCst);
        assert!(matches!(
            kept(&store, story.clone().next()),
            Err(Refused::Failed(_))
        ));
        assert!(!folder.file().exists());
        std::fs::rename(folder.0.join("away"), folder.file()).unwrap();
        assert_eq!(kept(&store, story.next()), Ok(()));
        drop(store);
        assert!(State::from(&open(&folder.0).1) == story.state);
    }

    #[test]
    fn a_session_that_ended_on_a_full_disk_does_not_come_back() {
        let folder = Folder::new();
        let (place, faults) = place(&folder.0);
        let (store, _) = Store::open_place(place, Box::new(|_| {})).unwrap();
        let client = Arc::<str>::from("1/a");
        let session = Default::default();
        let begun = Change::Session {
            client: client.clone(),
            session,
        };
        kept(&store, vec![begun.clone()]).unwrap();
        faults.writes.store(0, Ordering::SeqCst);
        assert!(kept(&store, vec![Change::SessionGone { client }]).is_err());
        faults.writes.store(u64::MAX, Ordering::SeqCst);
        kept(&store, vec![]).unwrap();
        drop(store);
        assert_eq!(open(&folder.0).1.sessions.len(), 0);
    }

    #[test]
    fn what_is_told_of_refused_messages_is_not_remembered() {
        let folder = Folder::new();
        let (place, faults) = place(&folder.0);
        let (tables, index, _) = place.open(true).unwrap();
        let mut writer = Writer {
            place,
            tables: Some(tables),
            index,
            owed: Default::default(),
            refused: Default::default(),
            failed: Box::new(|_| {}),
            failing: false,
            spare: false,
        };
        let client = Arc::<str>::from("1/a");
        let begun = Change::Session {
            client: client.clone(),
            session: Default::default(),
        };
        let body = Arc::new(Message {
            topic: "t".into(),
            payload: [1].into(),
            properties: [].into(),
            expiry: 0,
            qos: 1,
        });
        let exchange = |place: u64| {
            let (client, body) = (client.clone(), body.clone());
            let (client_2, client_3) = (client.clone(), client.clone());
            vec![
                Change::Message {
                    message: place,
                    body,
                },
                Change::Queue {
                    client,
                    place,
                    message: place,
                    qos: 1,
                    retain: false,
                    subscription_ids: [].into(),
                },
                Change::InFlight {
                    client: client_2,
                    place,
                    id: 1,
                    state: 0,
                },
                Change::Done {
                    client: client_3,
                    place,
                },
            ]
        };
        let mut first = vec![begun];
        first.extend(exchange(0).into_iter().take(2));
        writer.batch(vec![(first, None)]);
        for reads in [true, false] {
            faults.writes.store(0, Ordering::SeqCst);
            if !reads {
                std::fs::rename(folder.file(), folder.0.join("away")).unwrap();
            }
            for place in 1..20 {
                let mut changes = exchange(place);
                let done = changes.pop();
                writer.batch(vec![(changes, None)]);
                writer.batch(vec![(done.into_iter().collect(), None)]);
                writer.batch(vec![(exchange(0).into_iter().skip(2).collect(), None)]);
            }
            assert!(writer.owed.len() <= 1, "{}", writer.owed.len());
        }
    }

    #[test]
    fn the_operator_is_told_once_until_it_works_again() {
        let folder = Folder::new();
        let (place, faults) = place(&folder.0);
        let told = Arc::new(Mutex::new(Vec::new()));
        let log = told.clone();
        let failed = move |text: &str| log.lock().unwrap().push(text.to_owned());
        let (store, _) = Store::open_place(place, Box::new(failed)).unwrap();
        let mut story = Story::new(8);
        for _ in 0..2 {
            faults.writes.store(0, Ordering::SeqCst);
            for _ in 0..3 {
                assert_eq!(kept(&store, story.clone().next()), Err(Refused::Full));
            }
            faults.writes.store(u64::MAX, Ordering::SeqCst);
            kept(&store, story.next()).unwrap();
        }
        let path = folder.0.display();
        let sentence = format!("nothing can be kept in {path}: no room on the disk");
        assert_eq!(*told.lock().unwrap(), [sentence.clone(), sentence]);
    }
}
