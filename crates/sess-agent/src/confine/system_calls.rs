//! System calls that a confined process has no use for, or that lead around the rules on files.

use std::{collections::BTreeMap, env::consts::ARCH};

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch,
};

use super::Policy;

/// Refused whatever the arguments: other processes' memory and descriptors, mounts, keys, modules, the
/// clock, and `io_uring`, which makes sockets that no filter of calls sees.
const DENIED: &[i64] = &[
    libc::SYS_acct,
    libc::SYS_add_key,
    libc::SYS_bpf,
    libc::SYS_chroot,
    libc::SYS_clock_adjtime,
    libc::SYS_clock_settime,
    libc::SYS_delete_module,
    libc::SYS_finit_module,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fsopen,
    libc::SYS_fspick,
    libc::SYS_init_module,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_io_uring_setup,
    libc::SYS_kcmp,
    libc::SYS_kexec_load,
    libc::SYS_keyctl,
    libc::SYS_mount,
    libc::SYS_mount_setattr,
    libc::SYS_move_mount,
    libc::SYS_open_by_handle_at,
    libc::SYS_open_tree,
    libc::SYS_perf_event_open,
    libc::SYS_pidfd_getfd,
    libc::SYS_pivot_root,
    libc::SYS_process_madvise,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_ptrace,
    libc::SYS_quotactl,
    libc::SYS_reboot,
    libc::SYS_request_key,
    libc::SYS_setdomainname,
    libc::SYS_sethostname,
    libc::SYS_setns,
    libc::SYS_settimeofday,
    libc::SYS_swapoff,
    libc::SYS_swapon,
    libc::SYS_syslog,
    libc::SYS_umount2,
    libc::SYS_unshare,
    libc::SYS_userfaultfd,
    libc::SYS_vhangup,
];

/// Refused without namespaces, where the whole file system is in sight: Landlock has no rule for the owner, the
/// mode and the attributes of a file. By an open descriptor they can be changed, and opening has its rules.
const DENIED_BY_PATH: &[i64] = &[
    libc::SYS_fchmodat,
    SYS_FCHMODAT2,
    libc::SYS_fchownat,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chmod,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chown,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_lchown,
];

/// The same number on every architecture.
const SYS_FCHMODAT2: i64 = 452;

/// The second numbering of calls on x86-64, and calls that have a number of their own in it.
#[cfg(target_arch = "x86_64")]
const X32: i64 = 0x4000_0000;
#[cfg(target_arch = "x86_64")]
const DENIED_X32: &[i64] = &[521, 528, 539, 540];

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// `has_scopes` tells whether Landlock keeps abstract sockets inside.
pub(super) fn restrict(policy: &Policy, has_scopes: bool) -> Result<(), String> {
    let told = |error: &dyn std::fmt::Display| error.to_string();
    let mut rules = Rules::new();
    for call in DENIED {
        deny(&mut rules, *call, Vec::new());
    }
    if !policy.namespaces {
        for call in DENIED_BY_PATH {
            deny(&mut rules, *call, Vec::new());
        }
    }
    #[cfg(target_arch = "x86_64")]
    for call in DENIED_X32 {
        rules.insert(X32 | call, Vec::new());
    }
    let families = denied_families(&harmless_families(policy, has_scopes)).map_err(|error| told(&error))?;
    deny(&mut rules, libc::SYS_socket, families);
    // The flags of clone are known here; those of clone3 are not, so that has to seem absent.
    let namespaces = u64::try_from(libc::CLONE_NEWUSER).unwrap_or_default();
    let makes_user =
        SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(namespaces), namespaces)
            .and_then(|condition| SeccompRule::new(vec![condition]))
            .map_err(|error| told(&error))?;
    deny(&mut rules, libc::SYS_clone, vec![makes_user]);
    install(rules, libc::EPERM)?;
    let mut absent = Rules::new();
    deny(&mut absent, libc::SYS_clone3, Vec::new());
    install(absent, libc::ENOSYS)
}

fn deny(rules: &mut Rules, call: i64, when: Vec<SeccompRule>) {
    #[cfg(target_arch = "x86_64")]
    rules.insert(X32 | call, when.clone());
    rules.insert(call, when);
}

/// Returns the families of sockets that lead nowhere under this policy but where it allows.
///
/// Landlock knows nothing of UDP. Sockets with a path lead to whoever listens, past every rule on files, so
/// they are for namespaces alone, where the others' do not exist. Abstract sockets have no path: they belong
/// to the network's namespace, so where that is the machine's it takes Landlock to keep them inside.
fn harmless_families(policy: &Policy, has_scopes: bool) -> Vec<i32> {
    let mut harmless: Vec<i32> = Vec::new();
    if policy.network {
        harmless.extend([libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK]);
    }
    if policy.namespaces && (!policy.network || has_scopes) {
        harmless.push(libc::AF_UNIX);
    }
    harmless
}

/// Any other family is refused.
fn denied_families(harmless: &[i32]) -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
    if harmless.is_empty() {
        return Ok(Vec::new());
    }
    let conditions: Result<Vec<SeccompCondition>, _> = harmless
        .iter()
        .map(|family| {
            let family = u64::try_from(*family).unwrap_or_default();
            SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, family)
        })
        .collect();
    Ok(vec![SeccompRule::new(conditions?)?])
}

fn install(rules: Rules, errno: i32) -> Result<(), String> {
    let arch = TargetArch::try_from(ARCH).map_err(|error| error.to_string())?;
    let errno = u32::try_from(errno).unwrap_or_default();
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, SeccompAction::Errno(errno), arch);
    let program: BpfProgram = filter.and_then(TryInto::try_into).map_err(|error| error.to_string())?;
    seccompiler::apply_filter(&program).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_sockets_are_allowed_where_none_leads_outside() {
        for (namespaces, network, has_scopes, expected) in [
            (true, false, false, true),
            (true, false, true, true),
            (true, true, true, true),
            (true, true, false, false),
            (false, false, true, false),
            (false, true, true, false),
        ] {
            let policy = Policy { read: Vec::new(), write: Vec::new(), network, namespaces };
            let is_allowed = harmless_families(&policy, has_scopes).contains(&libc::AF_UNIX);
            assert_eq!(is_allowed, expected, "{policy:?}, scopes {has_scopes}");
        }
    }
}
