//! The engine's settings. Worker and compiler must agree on every one of them: an artefact that was made under others
//! is refused when it is loaded.

use wasmtime::{
    Collector, Config, Engine, InstanceAllocationStrategy, ModuleVersionStrategy, PoolingAllocationConfig,
};

/// What artefacts are bound to. Wasmtime itself compares its major version only: machine code from before a fix would
/// still load. Grows with every change of a setting below.
pub const LABEL: &str = "wasmtime 48.0.8, blastbox 3, epoch";
/// The same for code that counts its own work. Neither runs in the other's engine.
pub const METERED_LABEL: &str = "wasmtime 48.0.8, blastbox 3, epoch, fuel";

/// Guests that may live in one worker at the same time, those that are kept ready included.
pub const SLOTS: u32 = 8;
/// Stack of a guest. Its thread has more, for the functions of ours that it calls.
pub const GUEST_STACK: usize = 2 << 20;
/// Most memory of one guest, whatever the policy says: what 32 bits can address.
const MOST_MEMORY: usize = 4 << 30;
/// What one guest may consist of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Parts {
    pub(crate) instances: u32,
    pub(crate) memories: u32,
    pub(crate) tables: u32,
}

/// A module is one instance.
pub(crate) const MODULE: Parts = Parts { instances: 1, memories: 1, tables: 1 };
/// A component is put together of modules: one that was made of a Python program has some forty, which share a memory and a table.
#[cfg(feature = "components")]
pub(crate) const COMPONENT: Parts = Parts { instances: 128, memories: 8, tables: 32 };
/// Entries of all tables of a guest. Python's has 47 157.
pub(crate) const MOST_ENTRIES: usize = 200_000;
/// Bytes of a table that stay with its place: Python's has 372 KiB.
const KEPT_TABLE: usize = 512 << 10;
/// Wasmtime's own data of one guest: Python's takes 1.5 MiB.
const MOST_INSTANCE: usize = 8 << 20;

/// Whether an engine is for running or for compiling.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// In a worker.
    Run,
    /// In the compiler.
    Compile,
}

/// Whether machine code counts the work that it does. It costs a third of its speed, so that it is code of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Metering {
    /// No.
    None,
    /// Every instruction takes from what the command was given.
    Fuel,
}

impl Metering {
    /// What artefacts are bound to.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::None => LABEL,
            Self::Fuel => METERED_LABEL,
        }
    }

    /// A guest's files, less their endings. No name of a guest has a dot.
    #[must_use]
    pub fn stem(self, name: &str) -> String {
        match self {
            Self::None => name.to_owned(),
            Self::Fuel => format!("{name}.metered"),
        }
    }
}

/// The engine.
pub fn engine(purpose: Purpose, metering: Metering) -> wasmtime::Result<Engine> {
    Engine::new(&config(purpose, metering)?)
}

/// The engine of this worker.
#[cfg(not(feature = "components"))]
pub(crate) fn of_worker(metering: Metering) -> wasmtime::Result<Engine> {
    engine(Purpose::Run, metering)
}

/// The engine of this worker.
#[cfg(feature = "components")]
pub(crate) fn of_worker(metering: Metering) -> wasmtime::Result<Engine> {
    component_engine(metering)
}

/// The engine of components. Each consists of other parts, so that no places are kept for them.
#[cfg(feature = "components")]
pub fn component_engine(metering: Metering) -> wasmtime::Result<Engine> {
    let mut config = config(Purpose::Compile, metering)?;
    config.wasm_component_model(true);
    Engine::new(&config)
}

fn config(purpose: Purpose, metering: Metering) -> wasmtime::Result<Config> {
    let mut config = Config::new();
    // A module compiled where components are known shall run where they are not.
    #[cfg(feature = "components")]
    config.wasm_component_model(false);
    config.module_version(ModuleVersionStrategy::Custom(metering.label().to_owned()))?;
    config.consume_fuel(metering == Metering::Fuel);
    // Every loop and every call of a guest looks whether it is to end.
    config.epoch_interruption(true);
    // Never `Auto`: it depends on Cargo features, which differ between worker and compiler.
    config.collector(Collector::DeferredReferenceCounting);
    config.max_wasm_stack(GUEST_STACK);
    config.memory_init_cow(true);
    config.wasm_backtrace_max_frames(None);
    config.wasm_memory64(false).wasm_multi_memory(false);
    // Types, casts and lists of a garbage collector: much of the engine for a stranger's module to reach, with first values of globals that
    // are as large as they say, and no bound of `offered` that counts any of it. No guest needs it; exceptions have the same heap without.
    config.wasm_gc(false);
    config.concurrency_support(false);
    // Relaxed vector instructions give what the standard prefers, whatever the processor would. The bits of a NaN stay as it leaves them:
    // to make those one costs numpy three quarters of its speed (measured), and the same machine code leaves the same on every processor
    // that runs it.
    config.relaxed_simd_deterministic(true);
    if purpose == Purpose::Run {
        config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool()));
    }
    Ok(config)
}

fn pool() -> PoolingAllocationConfig {
    let mut pool = PoolingAllocationConfig::new();
    // With exceptions each guest also takes a heap from the memories.
    pool.total_core_instances(SLOTS).total_memories(2 * SLOTS).total_tables(SLOTS).total_gc_heaps(SLOTS);
    pool.max_memory_size(MOST_MEMORY).table_elements(MOST_ENTRIES).max_core_instance_size(MOST_INSTANCE);
    pool.max_memories_per_module(MODULE.memories).max_tables_per_module(MODULE.tables);
    // A memory is given back to the kernel whole: the next guest in its place sees the image and nothing of the last one.
    pool.linear_memory_keep_resident(0);
    // A table is cleared here up to this, which takes less than having its pages again: it has no image.
    pool.table_keep_resident(KEPT_TABLE);
    pool
}

#[cfg(all(test, feature = "compiler"))]
mod tests {
    use wasmtime::{Instance, Module, Store};

    use super::*;

    const HEAD: &[u8] = b"\0asm\x01\0\0\0";

    #[test]
    fn a_module_has_exceptions_and_no_lists_of_a_garbage_collector() {
        // A type of lists; a function of nothing, and an exception that is one.
        let list = [HEAD, b"\x01\x04\x01\x5e\x7f\x00"].concat();
        let exception = [HEAD, b"\x01\x04\x01\x60\x00\x00", b"\x0d\x03\x01\x00\x00"].concat();
        for metering in [Metering::None, Metering::Fuel] {
            for engine in [engine(Purpose::Compile, metering), component_engine(metering)] {
                let engine = engine.unwrap();
                assert!(Module::new(&engine, &list).is_err());
                assert!(Module::new(&engine, &exception).is_ok());
            }
        }
    }

    /// A processor may round once or twice there, and one that says nothing would do what is quicker for it.
    #[test]
    fn a_relaxed_vector_instruction_gives_the_same_on_every_processor() {
        let half = (-12_f32).exp2();
        let vector = |lane: f32| [&[0xfd, 0x0c][..], &lane.to_le_bytes().repeat(4)].concat();
        // x * x - (1 + 2h), where x = 1 + h: rounded once it is h squared, rounded twice nothing.
        let (x, less) = (1.0 + half, -(1.0 + 2.0 * half));
        let madd = [vector(x), vector(x), vector(less), vec![0xfd, 0x85, 0x02, 0xfd, 0x1f, 0x00]].concat();
        let body = [&[0x00], madd.as_slice(), &[0x0b]].concat();
        let length = u8::try_from(body.len()).unwrap();
        let module = [
            HEAD,
            b"\x01\x05\x01\x60\x00\x01\x7d\x03\x02\x01\x00\x07\x05\x01\x01f\x00\x00",
            &[0x0a, length + 2, 0x01, length],
            &body,
        ]
        .concat();
        let engine = engine(Purpose::Compile, Metering::None).unwrap();
        let module = Module::new(&engine, &module).unwrap();
        let mut store = Store::new(&engine, ());
        store.set_epoch_deadline(1);
        let instance = Instance::new(&mut store, &module, &[]).unwrap();
        let run = instance.get_typed_func::<(), f32>(&mut store, "f").unwrap();
        assert_eq!(run.call(&mut store, ()).unwrap().to_bits(), (half * half).to_bits());
    }
}
