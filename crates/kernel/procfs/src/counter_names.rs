//! Names of counters that files of /proc show, in the order of Linux 6.18. Programs look for some of them, and give up
//! where one is missing.

/// /proc/net/netstat.
pub(crate) const TCP_EXT: &str = "\
    SyncookiesSent SyncookiesRecv SyncookiesFailed EmbryonicRsts PruneCalled RcvPruned OfoPruned OutOfWindowIcmps \
    LockDroppedIcmps ArpFilter TW TWRecycled TWKilled PAWSActive PAWSEstab BeyondWindow TSEcrRejected PAWSOldAck \
    PAWSTimewait DelayedACKs DelayedACKLocked DelayedACKLost ListenOverflows ListenDrops TCPHPHits TCPPureAcks \
    TCPHPAcks TCPRenoRecovery TCPSackRecovery TCPSACKReneging TCPSACKReorder TCPRenoReorder TCPTSReorder TCPFullUndo \
    TCPPartialUndo TCPDSACKUndo TCPLossUndo TCPLostRetransmit TCPRenoFailures TCPSackFailures TCPLossFailures \
    TCPFastRetrans TCPSlowStartRetrans TCPTimeouts TCPLossProbes TCPLossProbeRecovery TCPRenoRecoveryFail \
    TCPSackRecoveryFail TCPRcvCollapsed TCPBacklogCoalesce TCPDSACKOldSent TCPDSACKOfoSent TCPDSACKRecv \
    TCPDSACKOfoRecv TCPAbortOnData TCPAbortOnClose TCPAbortOnMemory TCPAbortOnTimeout TCPAbortOnLinger \
    TCPAbortFailed TCPMemoryPressures TCPMemoryPressuresChrono TCPSACKDiscard TCPDSACKIgnoredOld \
    TCPDSACKIgnoredNoUndo TCPSpuriousRTOs TCPMD5NotFound TCPMD5Unexpected TCPMD5Failure TCPSackShifted TCPSackMerged \
    TCPSackShiftFallback TCPBacklogDrop PFMemallocDrop TCPMinTTLDrop TCPDeferAcceptDrop IPReversePathFilter \
    TCPTimeWaitOverflow TCPReqQFullDoCookies TCPReqQFullDrop TCPRetransFail TCPRcvCoalesce TCPOFOQueue TCPOFODrop \
    TCPOFOMerge TCPChallengeACK TCPSYNChallenge TCPFastOpenActive TCPFastOpenActiveFail TCPFastOpenPassive \
    TCPFastOpenPassiveFail TCPFastOpenListenOverflow TCPFastOpenCookieReqd TCPFastOpenBlackhole \
    TCPSpuriousRtxHostQueues BusyPollRxPackets TCPAutoCorking TCPFromZeroWindowAdv TCPToZeroWindowAdv \
    TCPWantZeroWindowAdv TCPSynRetrans TCPOrigDataSent TCPHystartTrainDetect TCPHystartTrainCwnd \
    TCPHystartDelayDetect TCPHystartDelayCwnd TCPACKSkippedSynRecv TCPACKSkippedPAWS TCPACKSkippedSeq \
    TCPACKSkippedFinWait2 TCPACKSkippedTimeWait TCPACKSkippedChallenge TCPWinProbe TCPKeepAlive TCPMTUPFail \
    TCPMTUPSuccess TCPDelivered TCPDeliveredCE TCPAckCompressed TCPZeroWindowDrop TCPRcvQDrop TCPWqueueTooBig \
    TCPFastOpenPassiveAltKey TcpTimeoutRehash TcpDuplicateDataRehash TCPDSACKRecvSegs TCPDSACKIgnoredDubious \
    TCPMigrateReqSuccess TCPMigrateReqFailure TCPPLBRehash TCPAORequired TCPAOBad TCPAOKeyNotFound TCPAOGood \
    TCPAODroppedIcmps";

/// /proc/net/netstat.
pub(crate) const IP_EXT: &str = "\
    InNoRoutes InTruncatedPkts InMcastPkts OutMcastPkts InBcastPkts OutBcastPkts InOctets OutOctets InMcastOctets \
    OutMcastOctets InBcastOctets OutBcastOctets InCsumErrors InNoECTPkts InECT1Pkts InECT0Pkts InCEPkts \
    ReasmOverlaps";

/// /proc/net/netstat. There are no sockets of MPTCP.
pub(crate) const MPTCP_EXT: &str = "\
    MPCapableSYNRX MPCapableSYNTX MPCapableSYNACKRX MPCapableACKRX MPCapableFallbackACK MPCapableFallbackSYNACK \
    MPCapableSYNTXDrop MPCapableSYNTXDisabled MPCapableEndpAttempt MPFallbackTokenInit MPTCPRetrans \
    MPJoinNoTokenFound MPJoinSynRx MPJoinSynBackupRx MPJoinSynAckRx MPJoinSynAckBackupRx MPJoinSynAckHMacFailure \
    MPJoinAckRx MPJoinAckHMacFailure MPJoinRejected MPJoinSynTx MPJoinSynTxCreatSkErr MPJoinSynTxBindErr \
    MPJoinSynTxConnectErr DSSNotMatching DSSCorruptionFallback DSSCorruptionReset InfiniteMapTx InfiniteMapRx \
    DSSNoMatchTCP DataCsumErr OFOQueueTail OFOQueue OFOMerge NoDSSInWindow DuplicateData AddAddr AddAddrTx \
    AddAddrTxDrop EchoAdd EchoAddTx EchoAddTxDrop PortAdd AddAddrDrop MPJoinPortSynRx MPJoinPortSynAckRx \
    MPJoinPortAckRx MismatchPortSynRx MismatchPortAckRx RmAddr RmAddrDrop RmAddrTx RmAddrTxDrop RmSubflow MPPrioTx \
    MPPrioRx MPFailTx MPFailRx MPFastcloseTx MPFastcloseRx MPRstTx MPRstRx SubflowStale SubflowRecover SndWndShared \
    RcvWndShared RcvWndConflictUpdate RcvWndConflict MPCurrEstab Blackhole MPCapableDataFallback MD5SigFallback \
    DssFallback SimultConnectFallback FallbackFailed WinProbe";

/// /proc/net/snmp6, the lines of IPv6.
pub(crate) const IP6: &str = "\
    InReceives InHdrErrors InTooBigErrors InNoRoutes InAddrErrors InUnknownProtos InTruncatedPkts InDiscards \
    InDelivers OutForwDatagrams OutRequests OutDiscards OutNoRoutes ReasmTimeout ReasmReqds ReasmOKs ReasmFails \
    FragOKs FragFails FragCreates InMcastPkts OutMcastPkts InOctets OutOctets InMcastOctets OutMcastOctets \
    InBcastOctets OutBcastOctets InNoECTPkts InECT1Pkts InECT0Pkts InCEPkts OutTransmits";

/// /proc/net/snmp6, types of ICMPv6.
pub(crate) const ICMP6: [(&str, u8); 15] = [
    ("DestUnreachs", 1),
    ("PktTooBigs", 2),
    ("TimeExcds", 3),
    ("ParmProblems", 4),
    ("Echos", 128),
    ("EchoReplies", 129),
    ("GroupMembQueries", 130),
    ("GroupMembResponses", 131),
    ("GroupMembReductions", 132),
    ("RouterSolicits", 133),
    ("RouterAdvertisements", 134),
    ("NeighborSolicits", 135),
    ("NeighborAdvertisements", 136),
    ("Redirects", 137),
    ("MLDv2Reports", 143),
];

/// /proc/net/snmp, types of ICMP.
pub(crate) const ICMP: [(&str, u8); 11] = [
    ("DestUnreachs", 3),
    ("TimeExcds", 11),
    ("ParmProbs", 12),
    ("SrcQuenchs", 4),
    ("Redirects", 5),
    ("Echos", 8),
    ("EchoReps", 0),
    ("Timestamps", 13),
    ("TimestampReps", 14),
    ("AddrMasks", 17),
    ("AddrMaskReps", 18),
];

/// /proc/vmstat.
pub(crate) const VMSTAT: &str = "\
    nr_free_pages nr_free_pages_blocks nr_zone_inactive_anon nr_zone_active_anon nr_zone_inactive_file \
    nr_zone_active_file nr_zone_unevictable nr_zone_write_pending nr_mlock nr_zspages nr_free_cma numa_hit numa_miss \
    numa_foreign numa_interleave numa_local numa_other nr_inactive_anon nr_active_anon nr_inactive_file \
    nr_active_file nr_unevictable nr_slab_reclaimable nr_slab_unreclaimable nr_isolated_anon nr_isolated_file \
    workingset_nodes workingset_refault_anon workingset_refault_file workingset_activate_anon \
    workingset_activate_file workingset_restore_anon workingset_restore_file workingset_nodereclaim nr_anon_pages \
    nr_mapped nr_file_pages nr_dirty nr_writeback nr_shmem nr_shmem_hugepages nr_shmem_pmdmapped nr_file_hugepages \
    nr_file_pmdmapped nr_anon_transparent_hugepages nr_vmscan_write nr_vmscan_immediate_reclaim nr_dirtied \
    nr_written nr_throttled_written nr_kernel_misc_reclaimable nr_foll_pin_acquired nr_foll_pin_released \
    nr_kernel_stack nr_page_table_pages nr_sec_page_table_pages nr_iommu_pages nr_swapcached pgpromote_success \
    pgpromote_candidate pgpromote_candidate_nrl pgdemote_kswapd pgdemote_direct pgdemote_khugepaged \
    pgdemote_proactive nr_hugetlb nr_balloon_pages nr_kernel_file_pages nr_dirty_threshold \
    nr_dirty_background_threshold nr_memmap_pages nr_memmap_boot_pages pgpgin pgpgout pswpin pswpout pgalloc_dma \
    pgalloc_dma32 pgalloc_normal pgalloc_movable pgalloc_device allocstall_dma allocstall_dma32 allocstall_normal \
    allocstall_movable allocstall_device pgskip_dma pgskip_dma32 pgskip_normal pgskip_movable pgskip_device pgfree \
    pgactivate pgdeactivate pglazyfree pgfault pgmajfault pglazyfreed pgrefill pgreuse pgsteal_kswapd pgsteal_direct \
    pgsteal_khugepaged pgsteal_proactive pgscan_kswapd pgscan_direct pgscan_khugepaged pgscan_proactive \
    pgscan_direct_throttle pgscan_anon pgscan_file pgsteal_anon pgsteal_file zone_reclaim_success \
    zone_reclaim_failed pginodesteal slabs_scanned kswapd_inodesteal kswapd_low_wmark_hit_quickly \
    kswapd_high_wmark_hit_quickly pageoutrun pgrotated drop_pagecache drop_slab oom_kill numa_pte_updates \
    numa_huge_pte_updates numa_hint_faults numa_hint_faults_local numa_pages_migrated pgmigrate_success \
    pgmigrate_fail thp_migration_success thp_migration_fail thp_migration_split compact_migrate_scanned \
    compact_free_scanned compact_isolated compact_stall compact_fail compact_success compact_daemon_wake \
    compact_daemon_migrate_scanned compact_daemon_free_scanned htlb_buddy_alloc_success htlb_buddy_alloc_fail \
    unevictable_pgs_culled unevictable_pgs_scanned unevictable_pgs_rescued unevictable_pgs_mlocked \
    unevictable_pgs_munlocked unevictable_pgs_cleared unevictable_pgs_stranded thp_fault_alloc thp_fault_fallback \
    thp_fault_fallback_charge thp_collapse_alloc thp_collapse_alloc_failed thp_file_alloc thp_file_fallback \
    thp_file_fallback_charge thp_file_mapped thp_split_page thp_split_page_failed thp_deferred_split_page \
    thp_underused_split_page thp_split_pmd thp_scan_exceed_none_pte thp_scan_exceed_swap_pte \
    thp_scan_exceed_share_pte thp_split_pud thp_zero_page_alloc thp_zero_page_alloc_failed thp_swpout \
    thp_swpout_fallback balloon_inflate balloon_deflate balloon_migrate swap_ra swap_ra_hit swpin_zero swpout_zero \
    ksm_swpin_copy cow_ksm zswpin zswpout zswpwb direct_map_level2_splits direct_map_level3_splits \
    direct_map_level2_collapses direct_map_level3_collapses nr_unstable";
