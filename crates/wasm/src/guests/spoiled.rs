//! A guest of ill will, played: what whoever comes after it must not find.

use wasmtime::Ref;

use super::{Broken, Seat, stuck};

/// What interpreters call the table that their functions lie in.
const TABLE: &str = "__indirect_function_table";

impl Seat {
    /// Does to its memory and its table what a guest of ill will might: they grow, and nothing in them is what it was.
    pub(crate) fn spoil(&mut self) -> Result<(), Broken> {
        const PAGES: u64 = 16;
        const BYTE: u8 = 0xA5;
        let memory = self.memory()?;
        memory.grow(&mut self.store, PAGES).map_err(|_| stuck("its memory does not grow"))?;
        memory.data_mut(&mut self.store).fill(BYTE);
        if let Some(table) = self.instance.get_table(&mut self.store, TABLE) {
            let size = table.size(&self.store);
            table
                .fill(&mut self.store, 0, Ref::Func(None), size)
                .map_err(|_| stuck("its table is no table of functions"))?;
        }
        Ok(())
    }

    /// Entries of its table that are no function.
    pub(crate) fn empty_entries(&mut self) -> usize {
        let Some(table) = self.instance.get_table(&mut self.store, TABLE) else { return 0 };
        let size = table.size(&self.store);
        (0..size).filter(|at| !matches!(table.get(&mut self.store, *at), Some(Ref::Func(Some(_))))).count()
    }
}
