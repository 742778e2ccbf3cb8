//! A process takes its own rights away: privileges, files, network, system calls, in this order.

#[cfg(target_os = "linux")]
pub(super) use linux::apply;
#[cfg(target_os = "linux")]
pub use linux::landlock_abi;

/// Before this version Landlock says nothing about the network.
pub const LANDLOCK_ABI_MIN: i32 = 4;

#[cfg(not(target_os = "linux"))]
pub(super) fn apply(_policy: &super::Policy) -> Result<(), super::Error> {
    Err(super::Error::Unable("this system has no Landlock".to_owned()))
}

#[cfg(not(target_os = "linux"))]
pub fn landlock_abi() -> Option<i32> {
    None
}

#[cfg(target_os = "linux")]
mod linux {
    use std::path::Path;

    use landlock::{
        ABI, Access as _, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible as _, PathBeneath, PathFd,
        Ruleset, RulesetAttr as _, RulesetCreated, RulesetCreatedAttr as _, RulesetError, RulesetStatus,
        Scope,
    };
    use rustix::thread::{CapabilitySet, CapabilitySets};

    use super::{
        super::{
            Error, Policy,
            bubblewrap::{PROGRAMS, SETTINGS},
            system_calls,
        },
        LANDLOCK_ABI_MIN,
    };

    /// From this version on, signals and abstract sockets can be kept inside.
    const ABI_WITH_SCOPES: i32 = 6;

    /// What of `/proc` says something about the machine, and nothing about a process.
    const MACHINE: [&str; 9] = [
        "/proc/cpuinfo",
        "/proc/filesystems",
        "/proc/loadavg",
        "/proc/meminfo",
        "/proc/stat",
        "/proc/sys/kernel",
        "/proc/sys/vm",
        "/proc/uptime",
        "/proc/version",
    ];
    const DEVICES: [&str; 5] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];

    /// Returns the version of Landlock that the kernel enforces.
    pub fn landlock_abi() -> Option<i32> {
        const VERSION: u32 = 1;
        #[expect(unsafe_code, reason = "the crate keeps the version to itself")]
        // SAFETY: with a null pointer, no size and this flag the call only returns a number.
        let abi = unsafe {
            libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u8>(), 0_usize, VERSION)
        };
        i32::try_from(abi).ok().filter(|abi| *abi > 0)
    }

    pub fn apply(policy: &Policy) -> Result<(), Error> {
        let unable = |error: &dyn std::fmt::Display| Error::Unable(error.to_string());
        let abi = landlock_abi().unwrap_or(0);
        if abi < LANDLOCK_ABI_MIN {
            return Err(Error::Unable(format!(
                "it takes Landlock ABI {LANDLOCK_ABI_MIN} (Linux 6.7), and this system has {abi}"
            )));
        }
        rustix::thread::set_no_new_privs(true).map_err(|error| unable(&error))?;
        restrict(policy, abi).map_err(|error| unable(&error))??;
        drop_capabilities().map_err(|error| unable(&error))?;
        system_calls::restrict(policy, abi >= ABI_WITH_SCOPES).map_err(|error| unable(&error))
    }

    /// Root inside is a user like others.
    fn drop_capabilities() -> rustix::io::Result<()> {
        let none = CapabilitySet::empty();
        let _there_are_none = rustix::thread::clear_ambient_capability_set();
        rustix::thread::set_capabilities(
            None,
            CapabilitySets { effective: none, permitted: none, inheritable: none },
        )
    }

    fn restrict(policy: &Policy, abi_number: i32) -> Result<Result<(), Error>, RulesetError> {
        let abi = ABI::from(abi_number);
        let mut ruleset = Ruleset::default()
            .set_compatibility(CompatLevel::HardRequirement)
            .handle_access(AccessFs::from_all(abi))?;
        if !policy.network {
            ruleset = ruleset.handle_access(AccessNet::from_all(abi))?;
        }
        if abi_number >= ABI_WITH_SCOPES {
            ruleset = ruleset.scope(Scope::from_all(abi))?;
        }
        let mut rules = Rules { ruleset: ruleset.create()?, abi };
        let read = AccessFs::from_read(abi);
        // No device is made or spoken to; bubblewrap's own are below.
        let write = AccessFs::from_all(abi) & !(AccessFs::MakeChar | AccessFs::MakeBlock);
        for path in PROGRAMS.iter().chain(&SETTINGS) {
            rules.allow(Path::new(path), read)?;
        }
        for path in &DEVICES {
            rules.allow(Path::new(path), AccessFs::ReadFile | AccessFs::WriteFile)?;
        }
        if policy.namespaces {
            rules.allow(Path::new("/proc"), read)?;
            for path in ["/dev/shm", "/dev/pts", "/tmp"] {
                rules.allow(Path::new(path), write)?;
            }
            for path in ["/dev/ptmx", "/dev/tty"] {
                rules.allow(Path::new(path), write)?;
            }
        } else {
            for path in &MACHINE {
                rules.allow(Path::new(path), read)?;
            }
            // Its number stays when it becomes another program; its children have no part in it.
            rules.allow(Path::new("/proc/self"), read)?;
        }
        for path in &policy.read {
            rules.allow(path, read)?;
        }
        for path in &policy.write {
            rules.allow(path, write)?;
        }
        let status = rules.ruleset.restrict_self()?;
        Ok(if status.ruleset == RulesetStatus::FullyEnforced {
            Ok(())
        } else {
            Err(Error::Unable("Landlock enforces only a part of it".to_owned()))
        })
    }

    struct Rules {
        ruleset: RulesetCreated,
        abi: ABI,
    }

    impl Rules {
        /// What does not exist needs no rule.
        fn allow(&mut self, path: &Path, access: BitFlags<AccessFs>) -> Result<(), RulesetError> {
            let Ok(fd) = PathFd::new(path) else { return Ok(()) };
            let access = if path.is_dir() { access } else { access & AccessFs::from_file(self.abi) };
            (&mut self.ruleset).add_rule(PathBeneath::new(fd, access))?;
            Ok(())
        }
    }
}
