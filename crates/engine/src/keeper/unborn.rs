//! What happens to the leases of a box that is in the making, until somebody watches over the box.
//!
//! A box that is never made has leases all the same: some of its secrets were minted before another could not be had, or
//! whoever asked went away. Their records are written here.

use std::sync::{Arc, PoisonError};

use blastbox_wire::event::About;
use tokio::sync::mpsc;

use super::events::Happened;
use super::face::Keeper;
use super::house::House;
use crate::leases::{News, Tell, Told};
use crate::live::LiveBox;

/// News of leases that nobody else hears yet. Dropped with them, it writes them down, and those that are still to come.
pub(crate) struct Unborn {
    house: Arc<House>,
    about: About,
    news: Option<News>,
}

impl Unborn {
    /// For the box that `about` names.
    pub(crate) fn begin(house: &Arc<House>, about: About) -> (Tell, Self) {
        let (tell, news) = mpsc::unbounded_channel();
        (tell, Self { house: Arc::clone(house), about, news: Some(news) })
    }

    /// There is a box: whoever watches over it hears them.
    pub(crate) fn hand_over(mut self, live: &LiveBox) {
        *live.lease_news.lock().unwrap_or_else(PoisonError::into_inner) = self.news.take();
    }
}

impl Drop for Unborn {
    fn drop(&mut self) {
        let Some(mut news) = self.news.take() else { return };
        // What is known already is written before whoever asked hears that there is no box.
        while let Ok(word) = news.try_recv() {
            write_down(&self.house, &self.about, &word);
        }
        write_rest(&self.house, self.about.clone(), Some(news));
    }
}

/// Writes down what is still to come, for as long as somebody has a word to say.
pub(crate) fn write_rest(house: &Arc<House>, about: About, news: Option<News>) {
    // Where no runtime is left, nothing happens any more that could be told.
    let (Some(mut news), Ok(runtime)) = (news, tokio::runtime::Handle::try_current()) else { return };
    // What is overdue may be told in days: nobody's house stays open for that.
    let house = Arc::downgrade(house);
    runtime.spawn(async move {
        while let Some(word) = news.recv().await {
            let Some(house) = house.upgrade() else { return };
            write_down(&house, &about, &word);
        }
    });
}

impl Keeper {
    /// Writes down what becomes of leases that an earlier daemon left. Their boxes are gone, so that it is of none.
    pub fn hear_leases(&self, mut news: News) {
        let house = Arc::downgrade(&self.0);
        tokio::spawn(async move {
            while let Some(word) = news.recv().await {
                let Some(house) = house.upgrade() else { return };
                // The next announcement fails as well, and is heard.
                house.pen.announce(None, &word.event()).ok();
            }
        });
    }
}

/// Writes down what became of a lease, and tells whoever has to look after it.
pub(crate) fn write_down(house: &House, about: &About, word: &Told) {
    house.pen.record(about, &word.event());
    if let Some((secret, why)) = word.trouble() {
        house.hub.tell(None, Happened::SecretTrouble { secret, why });
    }
}
