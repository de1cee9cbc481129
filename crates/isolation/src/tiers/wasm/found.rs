//! What this host has of the tier: the worker, and guests on its shelf.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use blastbox_images::{Form, ModuleImage};
use blastbox_policy::GuestName;

/// The worker's program.
pub const WORKER: &str = "blastbox-wasm";
/// The program of the worker whose guest is a component: what components take is linked by nobody else.
const COMPONENT_WORKER: &str = "blastbox-wasm-component";
/// The directory that worker, compiler and guests lie in, beside blastbox or in the place for programs that only programs
/// start.
const DIRECTORY: &str = "wasm";
/// What ends the name of a guest's manifest.
const MANIFEST: &str = ".guest";
/// The line of a manifest that says that the guest is a component.
const COMPONENT: &str = "kind component";
/// Longest manifest that is looked into.
const MOST_MANIFEST: u64 = 4096;
/// Most guests of one shelf: each is loaded by every worker.
const MOST: usize = 24;
/// Those that come with blastbox: whatever else lies on a shelf, they are on it.
const SHIPPED: [&str; 3] = ["js", "python", "python-data"];

/// What ends the name of a guest's machine code.
const CODE: &str = ".cwasm";

/// Whether guests count the work that they do: machine code of its own, which lies beside the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Metering {
    /// No.
    None,
    /// Yes.
    Fuel,
}

impl Metering {
    /// The file that says of a guest's machine code what it is.
    #[must_use]
    pub fn manifest(self, name: &str) -> String {
        format!("{}{MANIFEST}", self.stem(name))
    }

    /// A guest's files, less their endings. As the worker has it.
    fn stem(self, name: &str) -> String {
        match self {
            Self::None => name.to_owned(),
            Self::Fuel => format!("{name}.metered"),
        }
    }
}

/// The worker and its guests.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Guests {
    directory: PathBuf,
    names: Vec<String>,
    /// Those that are components: each has a box of its own.
    components: Vec<String>,
    /// The form of the only guest, where a policy names one.
    alone: Option<Form>,
    /// Those that no worker loads, because there are too many.
    left_out: Vec<String>,
    /// A module or component of the caller's.
    own: Option<ModuleImage>,
    /// Bytes of machine code, all together.
    code: u64,
    /// The same of code that counts its work; 0 where there is none.
    metered: u64,
    /// What a caller's program may be.
    forms: Vec<Form>,
}

impl Guests {
    /// Looks beside this program.
    pub(crate) fn look() -> Option<Self> {
        let places = crate::warden::places(DIRECTORY).ok()?;
        places.iter().find_map(|place| Self::at(place))
    }

    /// What lies in this directory, if a worker does.
    #[must_use]
    pub fn at(directory: &Path) -> Option<Self> {
        if !directory.join(WORKER).is_file() {
            return None;
        }
        let entries = std::fs::read_dir(directory).ok()?;
        let name = |entry: std::fs::DirEntry| {
            let name = entry.file_name().into_string().ok()?;
            let name = name.strip_suffix(MANIFEST)?;
            name.parse::<GuestName>().is_ok().then(|| name.to_owned())
        };
        let names = entries.filter_map(Result::ok).filter_map(name);
        let (mut components, modules): (Vec<String>, Vec<String>) =
            names.partition(|name| is_component(directory, name));
        components.sort();
        let (names, left_out) = chosen(modules);
        let sum = |metering| names.iter().map(|name| code_of(directory, name, metering)).sum();
        let (code, metered) = (sum(Metering::None), sum(Metering::Fuel));
        let both = directory.join(COMPONENT_WORKER).is_file().then_some(Form::Component);
        let forms = std::iter::once(Form::Module).chain(both).collect();
        let directory = directory.to_owned();
        let (own, alone) = (None, None);
        Some(Self { directory, names, components, alone, left_out, own, code, metered, forms })
    }

    /// The same with this guest of the shelf and no other, if it lies there.
    #[must_use]
    pub(super) fn alone(&self, name: &str) -> Option<Self> {
        let among = |names: &[String]| names.iter().any(|known| known == name);
        let form = if among(&self.components) {
            Form::Component
        } else if among(&self.names) || among(&self.left_out) {
            Form::Module
        } else {
            return None;
        };
        let code = |metering| code_of(&self.directory, name, metering);
        Some(Self {
            directory: self.directory.clone(),
            names: vec![name.to_owned()],
            components: Vec::new(),
            alone: Some(form),
            left_out: Vec::new(),
            own: None,
            code: code(Metering::None),
            metered: code(Metering::Fuel),
            forms: self.forms.clone(),
        })
    }

    /// The same with a module or component of the caller, which lies alone in its directory.
    #[must_use]
    pub(super) fn with_own(mut self, own: &ModuleImage) -> Self {
        // The worker of a component runs nothing else. Beside a module everything stays: commands name the caller's own as a file
        // (`js.wasm`), and no guest of the shelf.
        if own.form == Form::Component {
            (self.names, self.components, self.left_out) = (Vec::new(), Vec::new(), Vec::new());
            (self.code, self.metered) = (0, 0);
        }
        self.code = self.code.saturating_add(code_of(&own.directory, &own.name, Metering::None));
        self.metered = self.metered.saturating_add(code_of(&own.directory, &own.name, Metering::Fuel));
        self.own = Some(own.clone());
        self
    }

    /// Whether a caller may bring such a program: its worker is installed.
    #[must_use]
    pub fn runs(&self, form: Form) -> bool {
        self.forms.contains(&form)
    }

    /// The program that runs the guests of a box.
    pub(super) fn worker(&self) -> &'static str {
        match self.form() {
            Form::Module => WORKER,
            Form::Component => COMPONENT_WORKER,
        }
    }

    /// What the guests of a box are.
    pub(super) fn form(&self) -> Form {
        self.own.as_ref().map(|own| own.form).or(self.alone).unwrap_or(Form::Module)
    }

    /// Those on the shelf that a policy must name, because they are components.
    #[must_use]
    pub fn components(&self) -> &[String] {
        &self.components
    }

    /// Those on the shelf that run beside each other.
    #[must_use]
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Those on the shelf that no worker loads, because more lie there than one loads.
    #[must_use]
    pub fn left_out(&self) -> &[String] {
        &self.left_out
    }

    /// The caller's own.
    pub(super) fn own(&self) -> Option<&ModuleImage> {
        self.own.as_ref()
    }

    /// Whether there is a guest of this name.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.names.iter().any(|known| known == name)
    }

    /// Where worker, compiler and guests lie.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Bytes of machine code that a worker maps, all together.
    pub(super) fn code(&self, metering: Metering) -> u64 {
        match metering {
            Metering::None => self.code,
            Metering::Fuel => self.metered,
        }
    }

    /// What is shown of the host.
    pub(super) fn shown(&self) -> Vec<PathBuf> {
        let own = self.own.as_ref().map(|own| own.directory.clone());
        std::iter::once(self.directory.clone()).chain(own).collect()
    }

    #[cfg(test)]
    pub(crate) fn unmetered(names: &[&str]) -> Self {
        Self { metered: 0, ..Self::of(names) }
    }

    #[cfg(test)]
    pub(crate) fn with_components(self, names: &[&str]) -> Self {
        Self { components: names.iter().map(|name| (*name).to_owned()).collect(), ..self }
    }

    #[cfg(test)]
    pub(crate) fn without_component_worker(self) -> Self {
        Self { forms: vec![Form::Module], ..self }
    }

    #[cfg(test)]
    pub(crate) fn crowded(names: &[&str]) -> Self {
        let (names, left_out) = chosen(names.iter().map(|name| (*name).to_owned()).collect());
        Self { names, left_out, ..Self::of(&[]) }
    }

    #[cfg(test)]
    pub(crate) fn of(names: &[&str]) -> Self {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        Self {
            directory: "/opt/wasm".into(),
            names,
            components: Vec::new(),
            alone: None,
            left_out: Vec::new(),
            own: None,
            code: 300 << 20,
            metered: 400 << 20,
            forms: vec![Form::Module, Form::Component],
        }
    }
}

/// Those that a worker loads, and those that it does not.
fn chosen(mut names: Vec<String>) -> (Vec<String>, Vec<String>) {
    names.sort_by_key(|name| (!SHIPPED.contains(&name.as_str()), name.clone()));
    let left_out = names.split_off(names.len().min(MOST));
    names.sort();
    (names, left_out)
}

/// Whether the manifest says that a guest is a component. Of one that says nothing the worker says why.
fn is_component(directory: &Path, name: &str) -> bool {
    let mut text = String::new();
    let read = File::open(directory.join(format!("{name}{MANIFEST}")))
        .and_then(|file| file.take(MOST_MANIFEST).read_to_string(&mut text));
    read.is_ok() && text.lines().any(|line| line == COMPONENT)
}

/// Bytes of a guest's machine code; 0 where it cannot be seen, which its worker will say.
fn code_of(directory: &Path, name: &str, metering: Metering) -> u64 {
    let file = format!("{}{CODE}", metering.stem(name));
    std::fs::metadata(directory.join(file)).map_or(0, |about| about.len())
}
